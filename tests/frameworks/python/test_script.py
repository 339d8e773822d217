from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pytest_probe import frameworks
from pytest_probe.frameworks.base import LiteralCall
from pytest_probe.frameworks.python.script import literal
from pytest_probe.model.run import Arguments, Leaf
from tests.support.installed import needs_paddle

pytestmark = pytest.mark.slow

PATHS = {"pytorch": "torch.nn.functional.softmax", "paddle": "paddle.nn.functional.softmax"}
FRAMEWORKS = ["pytorch", pytest.param("paddle", marks=needs_paddle)]
ROW = np.array([[0.0, 1.0, np.inf], [2.0, -3.5, 0.25]], np.float32)


def printed(framework: str, leaf: Leaf, folder: Path, seeds: dict[str, Any] | None = None) -> list[str]:
    wanted = ["input.0"] if seeds else []
    call = LiteralCall("softmax: 'wrong'", "cpu", PATHS[framework], Arguments((leaf, -1), {}, ()), wanted, seeds or {})
    file = folder / "again.py"
    file.write_text(frameworks.load(framework).literal_script(call), encoding="utf-8")
    run = subprocess.run([sys.executable, "-W", "ignore", file], capture_output=True, text=True, check=True)
    return run.stdout.splitlines()


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("strides", [None, (1, 2), (6, 2)])
def test_a_script_prints_both_sides(framework: str, strides: tuple[int, ...] | None, tmp_path: Path) -> None:
    lines = printed(framework, Leaf(ROW, False, strides), tmp_path)
    assert lines[0] == "actual"
    assert {"expected", "error"} < set(lines)
    assert sum("nan" in line for line in lines) == 3


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_script_of_a_backward(framework: str, tmp_path: Path) -> None:
    lines = printed(framework, Leaf(ROW[1:]), tmp_path, {"output.0": np.array([[1.0, 0.0, 0.0]], np.float32)})
    assert "float64" in "".join(lines[lines.index("expected") : lines.index("error")])
    assert "0.128" in "".join(lines[: lines.index("expected")])


# Paddle has no such kernel of bfloat16 on the CPU.
@pytest.mark.parametrize(
    ("framework", "kind"),
    [
        *(("pytorch", kind) for kind in ("few", "one", "bfloat16")),
        ("pytorch", "many"),
        *(pytest.param("paddle", kind, marks=needs_paddle) for kind in ("few", "one", "many")),
    ],
)
def test_long_tensors_are_written_by_what_differs(framework: str, kind: str, tmp_path: Path) -> None:
    values = np.zeros((20, 10), np.float32)
    if kind == "few":
        values[3, 4] = 7.5
    elif kind == "many":
        values[:] = np.arange(200).reshape(20, 10)
    elif kind == "bfloat16":
        values = values.astype(ml_dtypes.bfloat16)
    assert printed(framework, Leaf(values), tmp_path)[0] == "actual"
    script = (tmp_path / "again.py").read_text(encoding="utf-8")
    assert ("198.0, 199.0" in script) == (kind == "many")
    assert "nan" not in script.partition("def run")[0]


def test_too_many_different_numbers_are_not_written() -> None:
    values = np.arange(5000, dtype=np.float32)
    call = LiteralCall("t", "cpu", PATHS["pytorch"], Arguments((Leaf(values), -1), {}, ()), [], {})
    assert frameworks.load("pytorch").literal_script(call) == ""


@pytest.mark.parametrize(
    "value",
    [complex(1, np.inf), complex(-np.inf, -0.0), complex(np.nan, 2.5), complex(-0.0, 1), 3j, 0.1, -np.inf, 7, "a'b"],
)
def test_a_literal_is_the_value_that_it_was_written_for(value: Any) -> None:
    assert repr(eval(literal(value))) == repr(value)
