from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import pytest

from pytest_probe import frameworks
from pytest_probe.frameworks.base import LiteralCall
from pytest_probe.frameworks.python.script import literal
from pytest_probe.model.run import Arguments, Leaf
from tests.support.installed import needs_paddle

PATHS = {"pytorch": "torch.nn.functional.softmax", "paddle": "paddle.nn.functional.softmax"}
FRAMEWORKS = ["pytorch", pytest.param("paddle", marks=needs_paddle)]
ROW = np.array([[0.0, 1.0, np.inf], [2.0, -3.5, 0.25]], np.float32)


Printed: TypeAlias = "Callable[..., list[str]]"


@pytest.fixture
def printed(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Printed:
    """What a script prints in this process. In one of its own: tests/features/fuzz/test_search.py."""

    def run(framework: str, leaf: Leaf, seeds: dict[str, Any] | None = None) -> list[str]:
        wanted, arguments = ["input.0"] if seeds else [], Arguments((leaf, -1), {}, ())
        call = LiteralCall("softmax: 'wrong'", "cpu", PATHS[framework], arguments, wanted, seeds or {})
        file = tmp_path / "again.py"
        file.write_text(frameworks.load(framework).literal_script(call), encoding="utf-8")
        monkeypatch.setattr("sys.argv", [file.name])
        runpy.run_path(str(file), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return run


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("strides", [None, (1, 2), (6, 2)])
def test_a_script_prints_both_sides(framework: str, strides: tuple[int, ...] | None, printed: Printed) -> None:
    lines = printed(framework, Leaf(ROW, False, strides))
    assert lines[0] == "actual"
    assert {"expected", "error"} < set(lines)
    assert sum("nan" in line for line in lines) == 3


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_script_of_a_backward(framework: str, printed: Printed) -> None:
    lines = printed(framework, Leaf(ROW[1:]), {"output.0": np.array([[1.0, 0.0, 0.0]], np.float32)})
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
def test_long_tensors_are_written_by_what_differs(framework: str, kind: str, printed: Printed, tmp_path: Path) -> None:
    values = np.zeros((20, 10), np.float32)
    if kind == "few":
        values[3, 4] = 7.5
    elif kind == "many":
        values[:] = np.arange(200).reshape(20, 10)
    elif kind == "bfloat16":
        values = values.astype(ml_dtypes.bfloat16)
    assert printed(framework, Leaf(values))[0] == "actual"
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
