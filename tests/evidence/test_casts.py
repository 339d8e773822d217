"""Functions of a user's that compute tables and statistics in float32, and cast them to 16 bit: steps that round."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.support.comparing import compared

Tensor = torch.Tensor
Function = Callable[..., Tensor]
SIZE = 64
pytestmark = [
    pytest.mark.usefixtures("no_causes"),
    pytest.mark.parametrize("device", ["cpu", "other"]),
    pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16]),
]


def table(shift: int = 0) -> Tensor:
    return torch.cos((torch.arange(SIZE).float() + shift) * 0.37)


def by_table(x: Tensor, weight: Tensor, cosines: Tensor | None = None) -> Tensor:
    return x * (table() if cosines is None else cosines).to(x.dtype)


def rotated(x: Tensor, weight: Tensor, cosines: Tensor | None = None) -> Tensor:
    found = table() if cosines is None else cosines
    return x * found.to(x.dtype) - x.flip(-1) * found.flip(-1).to(x.dtype)


def by_list(x: Tensor, weight: Tensor, cosines: Tensor | None = None) -> Tensor:
    found = table() if cosines is None else cosines
    return x * torch.tensor(found.tolist(), dtype=x.dtype) + x.flip(-1)


def by_wide_list(x: Tensor, weight: Tensor) -> Tensor:
    return (x * torch.tensor(table().tolist())).to(x.dtype) * weight


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight


def in_both(x: Tensor, weight: Tensor) -> Tensor:
    """The same table in float32, then in 16 bit."""
    cosines = table()
    return (x.float() * cosines).to(x.dtype) * cosines.to(x.dtype) + weight * cosines.to(x.dtype)


def arguments(dtype: torch.dtype, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=generator).to(dtype) for size in ((20, SIZE), (SIZE,))]


@pytest.mark.parametrize("function", [by_table, rotated, by_list, by_wide_list, rms_norm, in_both])
def test_a_function_is_right_next_to_itself(function: Function, dtype: torch.dtype, device: str) -> None:
    for seed in range(3):
        found = compared(function, function, arguments(dtype, seed), device=device, allow="none", backward=True)
        assert [each.verdict for each in found] == ["pass", "pass"], [each.reason for each in found]


WRONG: dict[str, Function] = {
    "one element": lambda cosines: torch.cat([cosines[:20], 1.03 * cosines[20:21], cosines[21:]]),
    "last is stale": lambda cosines: torch.cat([cosines[:-1], cosines[-2:-1]]),
    "shifted": lambda cosines: table(1),
    "scaled": lambda cosines: 1.02 * cosines,
    "tail unwritten": lambda cosines: torch.cat([cosines[:-4], torch.zeros(4)]),
}


@pytest.mark.parametrize("fault", WRONG)
@pytest.mark.parametrize("function", [by_table, rotated, by_list])
def test_a_wrong_table_is_an_error(function: Function, fault: str, dtype: torch.dtype, device: str) -> None:
    wrong = WRONG[fault](table())
    (found,) = compared(
        lambda x, weight: function(x, weight, wrong), function, arguments(dtype), device=device, allow="none"
    )
    assert found.verdict == "error"
