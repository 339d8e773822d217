"""The gradients that come in: as recorded, or generated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_probe.check import CaseOutcome
from tests.check.conftest import Make, normal


def seeds(checked: CaseOutcome, path: Path) -> dict[str, Any]:
    checked.save(path)
    saved = torch.load(path, weights_only=True)
    return {name.removeprefix("seed."): value for name, value in saved.items() if name.startswith("seed.")}


def edited(entry: str, change: Callable[[list[Any]], None]) -> Callable[[dict[str, Any]], None]:
    return lambda data: change(data[entry]["input"])


SPLIT = "Torch.split", torch.split, normal(6), 2


@pytest.mark.parametrize(
    ("call", "change", "names"),
    [
        (("Torch.split", torch.split, normal(6), 2), list, ["output.0", "output.1", "output.2"]),
        (
            ("Torch.split", torch.split, normal(6), 2),
            lambda found: found.__setitem__(1, None),
            ["output.0", "output.2"],
        ),
        # All have one where none was recorded.
        (
            ("Torch.split", torch.split, normal(6), 2),
            lambda found: found.__setitem__(slice(None), [None] * 3),
            ["output.0", "output.1", "output.2"],
        ),
        # Indices have none.
        (("Torch.max", torch.max, normal(5, 5), 1), lambda found: found.__setitem__(1, None), ["output.0"]),
    ],
)
def test_outputs_with_a_recorded_gradient_have_one(
    bench: Make, tmp_path: Path, call: Any, change: Any, names: list[str]
) -> None:
    made = bench(*call, backward=True, edit=edited(f"{call[0]}.0.backward", change))
    found = made.run("backward")
    assert found.verdict.verdict == "pass"
    assert sorted(seeds(found, tmp_path / "x.pt")) == names
