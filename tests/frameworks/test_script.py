"""What saved scripts print, of each framework, run in this process, which has the framework already."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_probe.model.run import Arguments, Leaf

X = np.array([[1.0, -2.0], [3.0, 4.0]], dtype=np.float32)


@pytest.fixture
def printed(kit: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(path: str, args: tuple[np.ndarray, ...], expected: dict[str, Any], wanted: tuple[str, ...] = ()) -> str:
        """With the arguments among what is saved."""
        file = tmp_path / "call.py"
        arguments = Arguments(tuple(map(Leaf, args)), {}, None)
        file.write_text(kit.framework.script("x.0.forward", file.name, path, arguments, wanted), encoding="utf-8")
        given = {f"input.{place}": array for place, array in enumerate(args)}
        kit.framework.save(file.with_suffix(".pt"), {**given, **expected})
        runpy.run_path(str(file))
        return capsys.readouterr().out

    monkeypatch.setattr("sys.argv", ["call.py"])
    return run


def test_the_call_is_made_again(kit: Any, printed: Any) -> None:
    saved = {"actual.output.0": X, "expected.output.0": np.abs(X).astype(np.float64) + 0.25}
    text = printed(f"{kit.module.__name__}.abs", (X,), saved)
    assert text == "output.0: actual 1.0, expected 1.25, error 0.25; the worst of 4\n"


def test_gradients(kit: Any, printed: Any) -> None:
    saved = {"seed.output.0": np.full((2, 2), 2, np.float32), "expected.grad.input.0": 4.0 * X}
    text = printed(f"{kit.module.__name__}.square", (X,), saved, ("input.0",))
    assert re.fullmatch(r"grad.input.0: actual \S+, expected \S+, error 0.0; the worst of 4\n", text)


@pytest.mark.parametrize("values", [X, np.array([1, 2]), np.array([1 + 2j, 3]), np.array([True, False])], ids=str)
def test_the_script_prints_an_argument_that_the_call_writes_to(kit: Any, printed: Any, values: np.ndarray) -> None:
    saved = {"expected.output.0": values + values, "expected.input.0": values + values}
    name = "logical_or_" if values.dtype == bool else "add_"
    text = printed(f"{kit.module.__name__}.Tensor.{name}", (values, values), saved)
    assert [line.partition(":")[0] for line in text.splitlines()] == ["output.0", "input.0"]
    assert text.count("error 0.0;") == 2


def test_what_cannot_be_written_down_is_shown_as_saved(printed: Any) -> None:
    text = printed("my_kernels.f", (X,), {"actual.output.0": X, "expected.output.0": X + 0.5})
    assert "error 0.5; the worst of 4" in text
