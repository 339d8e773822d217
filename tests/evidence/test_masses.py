"""Faults that show at exact zeros and zero rows only: generated inputs have them, so they are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.evidence.test_faults import Function, narrow_only
from tests.support.checking import verdicts
from tests.support.writing import write_dump

NORMAL = {"Max": 3.3, "Min": -3.2, "Mean": 0.01, "Norm": 64.0}
RELU = {"Max": 3.3, "Min": 0.0, "Mean": 0.4, "Norm": 45.2}


def write(folder: Path, api: str, statistics: dict[str, Any], *others: Any, shape: tuple[int, ...] = (64, 64)) -> Path:
    """A dump of one call and its backward, of which only usual statistics were kept."""
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [64, 64], "requires_grad": True, **statistics}
    made = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": list(shape)}
    forward = {"input_args": [tensor, *others], "input_kwargs": {}, "output": [made]}
    gradient = {**made, "Max": 3.0, "Min": -3.0, "Mean": 0.0, "Norm": 64.0}
    return write_dump(
        folder, {f"{api}.0.forward": forward, f"{api}.0.backward": {"input": [gradient], "output": [tensor]}}
    )


def relu(right: Function, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """The gradient is 1 where x is 0."""
    return x * (x >= 0)


def softsign(right: Function, x: torch.Tensor, *args: Any) -> Any:
    """x / x would do for the sign."""
    return x.abs() / x / (1 + x.abs()) * x.abs()


def mean_of_nonzero(right: Function, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """The count of elements is taken to be that of those that are not zero."""
    return x.sum(-1) / x.count_nonzero(-1)


def normalize(right: Function, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Without the eps: NaN for a row of zeros, right to the last digit for others."""
    return x / torch.sqrt((x * x).sum(-1, keepdim=True))


INTEGER = {"type": "int", "value": -1}


@pytest.mark.parametrize(
    ("api", "module", "fault", "statistics", "others", "shape"),
    [
        ("Functional.relu", "nn.functional", relu, NORMAL, (), (64, 64)),
        ("Functional.softsign", "nn.functional", softsign, NORMAL, (), (64, 64)),
        ("Torch.mean", "", mean_of_nonzero, RELU, (INTEGER,), (64,)),
        ("Torch.mean", "", mean_of_nonzero, NORMAL, (INTEGER,), (64,)),
        ("Functional.normalize", "nn.functional", normalize, RELU, (), (64, 64)),
    ],
)
@pytest.mark.parametrize("planted", [True, False])
def test_a_fault_at_a_mass_is_found(
    api: str,
    module: str,
    fault: Function,
    statistics: dict[str, Any],
    others: tuple[Any, ...],
    shape: tuple[int, ...],
    planted: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = write(tmp_path, api, statistics, *others, shape=shape)
    if planted:
        owner: Any = torch
        for name in module.split(".") if module else ():
            owner = getattr(owner, name)
        name = api.rpartition(".")[2]
        monkeypatch.setattr(owner, name, narrow_only(fault)(getattr(owner, name)))
    found = {verdict.verdict for verdict in verdicts(path).values()}
    assert found == {"pass"} if not planted else "error" in found
