"""TF32 in products of few terms, where few samples of its rounding say little of one element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_probe.check import Checker, RunRequest
from pytest_probe.registry import Registry
from tests.support.devices import Emulated
from tests.support.emulated import to_bits


def operands(rows: int, terms: int, columns: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, terms, generator=generator), torch.randn(terms, columns, generator=generator)


def verdict(device: Callable[..., Any], a: torch.Tensor, b: torch.Tensor) -> str:
    registry = Registry.default()
    registry.devices["cuda"] = Emulated
    checker = Checker(RunRequest(device="cuda", allow=("tf32",), diagnosed=False), registry)
    return checker.compare(device, torch.mm, (a, b), api="Torch.mm")[0].verdict


@pytest.mark.parametrize("how", ["even", "away", "zero"])
@pytest.mark.parametrize("terms", [1, 2, 5])
def test_operands_that_are_rounded_pass(terms: int, how: str) -> None:
    rounded = to_bits(11, how)
    for seed in range(6):
        a, b = operands(139, terms, 32, seed)
        assert verdict(lambda a, b: torch.mm(rounded(a), rounded(b)), a, b) == "pass"


@pytest.mark.parametrize("terms", [1, 5, 13, 200])
@pytest.mark.parametrize("shape", [(19, 34), (16, 1), (1, 40)])
def test_an_element_that_is_off_by_32_times_the_modes_error_is_an_error(shape: tuple[int, int], terms: int) -> None:
    rounded, (a, b) = to_bits(11), operands(shape[0], terms, shape[1], 3)

    def device(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        found = torch.mm(rounded(a), rounded(b))
        size = (found.double() - a.double() @ b.double()).square().mean().sqrt().float()
        place = found.abs().flatten().argsort()[found.numel() // 2]
        found.view(-1)[place] += 32 * size
        return found

    assert verdict(device, a, b) == "error"
