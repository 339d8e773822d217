"""The gradients that come in: as recorded, or generated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from pytest_probe.check import CaseOutcome
from tests.check.conftest import Make, normal


def seeds(checked: CaseOutcome, path: Path) -> dict[str, Any]:
    checked.save(path)
    saved = torch.load(path, weights_only=True)
    return {name.removeprefix("seed."): value for name, value in saved.items() if name.startswith("seed.")}


def test_every_output_has_an_incoming_gradient(bench: Make, tmp_path: Path) -> None:
    made = bench("Torch.split", torch.split, normal(6), 2, backward=True)
    found = made.run("backward")
    assert found.verdict.verdict == "pass"
    assert sorted(seeds(found, tmp_path / "x.pt")) == ["output.0", "output.1", "output.2"]


def test_an_output_that_got_no_gradient_has_none(bench: Make, tmp_path: Path) -> None:
    def edit(data: dict[str, Any]) -> None:
        data["Torch.split.0.backward"]["input"][1] = None

    made = bench("Torch.split", torch.split, normal(6), 2, backward=True, edit=edit)
    found = made.run("backward")
    assert found.verdict.verdict == "pass"
    assert sorted(seeds(found, tmp_path / "x.pt")) == ["output.0", "output.2"]


def test_all_have_one_where_none_was_recorded(bench: Make, tmp_path: Path) -> None:
    def edit(data: dict[str, Any]) -> None:
        data["Torch.split.0.backward"]["input"] = [None, None, None]

    made = bench("Torch.split", torch.split, normal(6), 2, backward=True, edit=edit)
    found = made.run("backward")
    assert found.verdict.verdict == "pass"
    assert len(seeds(found, tmp_path / "x.pt")) == 3


def test_indices_have_no_gradient(bench: Make, tmp_path: Path) -> None:
    def edit(data: dict[str, Any]) -> None:
        data["Torch.max.0.backward"]["input"][1] = None

    made = bench("Torch.max", torch.max, normal(5, 5), 1, backward=True, edit=edit)
    found = made.run("backward")
    assert found.verdict.verdict == "pass"
    assert list(seeds(found, tmp_path / "x.pt")) == ["output.0"]
