from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pytest_probe import capture
from pytest_probe.capture.estimate import Cost, estimates, lines
from pytest_probe.capture.writer import Outcome


def program() -> None:
    generator = torch.Generator().manual_seed(0)  # numbers of all their digits
    x = torch.randn(64, 32, generator=generator, requires_grad=True)
    weight = torch.randn(16, 32, generator=generator)
    for _ in range(5):
        torch.nn.functional.linear(x, weight).sum().backward()
    torch.cat([x, torch.empty(0, 32)])


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_bytes_are_those_of_captures(tmp_path: Path) -> None:
    for task in ("structure", "statistics", "tensor"):
        with capture(tmp_path / task, task=task):
            program()
    recorded = Outcome(calls=1, size=size_of(tmp_path / "structure"), steps=1, seconds=0.5)
    found = estimates(tmp_path / "structure", recorded)
    for task, cost in found.items():
        assert cost.size == pytest.approx(size_of(tmp_path / task), rel=0.03)
    assert found["structure"].seconds == 0.5 < found["statistics"].seconds < found["tensor"].seconds
    assert [path.name for path in (tmp_path / "structure").iterdir()] == ["step0"]


def test_a_step_without_tensors_takes_what_its_structure_takes(tmp_path: Path) -> None:
    found = estimates(tmp_path, Outcome(size=1000, steps=1, seconds=0.25))
    assert set(found.values()) == {Cost(1000.0, 0.25)}


def test_lines_say_how_many_steps_have_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_probe.capture.estimate.free", lambda folder: 40_000_000_000)
    found = {"structure": Cost(3e6, 0.5), "tensor": Cost(1.2e9, 3.1)}
    assert list(lines(found, tmp_path)) == [
        "--task=structure: 3.0 MB and 0.5 s a step",
        "--task=tensor: 1.2 GB and 3.1 s a step, room for 33 steps",
        "40 GB free",
    ]


def test_a_dtype_that_numpy_has_no_place_for_is_left_out(tmp_path: Path) -> None:
    with capture(tmp_path, task="structure"):
        torch.ones(1000, dtype=torch.complex32)
    assert estimates(tmp_path, Outcome(size=1000, steps=1))["tensor"].size == 1000
