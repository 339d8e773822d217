"""What saved scripts print, run in this process, which has Paddle already."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from pytest_probe import frameworks
from pytest_probe.model.run import Arguments, Leaf

X = np.array([[1.0, -2.0], [3.0, 4.0]], dtype=np.float32)


@pytest.fixture(autouse=True)
def no_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["call.py"])


def printed(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    path: str,
    arguments: Arguments,
    saved: dict[str, Any],
    wanted: tuple[str, ...] = (),
) -> str:
    framework = frameworks.load("paddle")
    file = folder / "call.py"
    file.write_text(framework.script("paddle.x.0.forward", file.name, path, arguments, wanted), encoding="utf-8")
    framework.save(file.with_suffix(".pt"), saved)
    runpy.run_path(str(file))
    return capsys.readouterr().out


def test_the_call_is_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = {"input.0": X, "actual.output.0": X, "expected.output.0": np.abs(X).astype(np.float64) + 0.25}
    text = printed(tmp_path, capsys, "paddle.abs", Arguments((Leaf(X),), {}, None), saved)
    assert text == "output.0: actual 1.0, expected 1.25, error 0.25; the worst of 4\n"


def test_gradients(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = {"input.0": X, "seed.output.0": np.full((2, 2), 2, np.float32), "expected.grad.input.0": 4.0 * X}
    text = printed(tmp_path, capsys, "paddle.square", Arguments((Leaf(X),), {}, None), saved, ("input.0",))
    assert re.fullmatch(r"grad.input.0: actual \S+, expected \S+, error 0.0; the worst of 4\n", text)


def test_the_script_prints_an_argument_that_the_call_writes_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = {"input.0": X, "expected.output.0": X + 1.0, "expected.input.0": X + 1.0}
    text = printed(
        tmp_path,
        capsys,
        "paddle.Tensor.add_",
        Arguments((Leaf(X), Leaf(np.ones((), np.float32))), {}, None),
        {**saved, "input.1": np.ones((), np.float32)},
    )
    assert [line.partition(":")[0] for line in text.splitlines()] == ["output.0", "input.0"]
    assert text.count("error 0.0;") == 2


def test_what_cannot_be_written_down_is_shown_as_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = {"actual.output.0": X, "expected.output.0": X + 0.5}
    text = printed(tmp_path, capsys, "my_kernels.f", Arguments((Leaf(X),), {}, None), saved)
    assert "error 0.5; the worst of 4" in text
