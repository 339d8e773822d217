from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from pytest_probe import capture
from pytest_probe.errors import OverflowFound
from tests.support.capturing import recorded

UNWRITTEN: dict[str, Callable[[], object]] = {
    "empty": lambda: torch.empty(3),
    "empty_like": lambda: torch.empty_like(torch.ones(3)),
    "empty_permuted": lambda: torch.empty_permuted((2, 3), (1, 0)),
    "new_empty": lambda: torch.ones(1).new_empty(3),
    "resize_": lambda: torch.ones(1).resize_(5),
    "set_": lambda: torch.ones(1).set_(torch.empty(3)),  # type: ignore[call-overload]
    "aten": lambda: torch.ops.aten.empty.memory_format([3]),
    "out": lambda: torch.add(torch.ones(3), 1, out=torch.empty(3)),
    "views": lambda: torch.empty(2, 3).t().reshape(-1).view(3, 2)[0].unsqueeze(0).expand(2, 2).detach().chunk(2),
    "copies": lambda: torch.cat([torch.empty(3).clone().double(), torch.empty(3, dtype=torch.float64)]),
    "parts": lambda: torch.empty(3).index_fill_(0, torch.tensor([1]), 2.0).scatter_(0, torch.tensor([0]), 1.0),
    "slices": lambda: [torch.empty(4)[:2].fill_(1.0), torch.empty(4).narrow(0, 1, 2).copy_(torch.ones(2))],
    "parameter": lambda: torch.nn.Linear(3, 3),
    "normal_": lambda: torch.empty(3).normal_(),
    "fill_": lambda: torch.empty(3).fill_(2.0),
    "copy_": lambda: torch.empty(3).copy_(torch.ones(3)).mul(2),
}


@pytest.fixture
def _memory_of_nan() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("_memory_of_nan")
@pytest.mark.parametrize("program", UNWRITTEN)
def test_memory_that_nothing_was_written_to_is_no_overflow(tmp_path: Path, program: str) -> None:
    assert torch.empty(3).isnan().all()
    with capture(tmp_path, task="overflow_check"):
        UNWRITTEN[program]()
    assert not list(tmp_path.glob("step0/*/dump.json"))


@pytest.mark.usefixtures("_memory_of_nan")
@pytest.mark.parametrize(
    ("program", "name"),
    [
        (lambda: torch.empty(3) * 2, r"Tensor\.(mul|__mul__)\.0"),
        (lambda: torch.empty(3).t().sum(), r"Tensor\.sum\.0"),
        (lambda: torch.empty(3).fill_(torch.nan), r"Tensor\.fill_\.0"),
        (lambda: torch.empty(3).zero_().div_(0).clone(), r"Tensor\.div_\.0"),
        (lambda: torch.empty(3).copy_(torch.tensor([1.0, 2.0, torch.inf])), r"Torch\.tensor\.0|Tensor\.copy_\.0"),
    ],
)
def test_what_is_computed_from_such_memory_is_one(tmp_path: Path, program: Callable[[], object], name: str) -> None:
    with pytest.raises(OverflowFound, match=name):
        recorded(tmp_path, program, task="overflow_check")
