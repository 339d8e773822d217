"""Decompositions are as exact as for a matrix that is off by a roundoff of its size. Where rows and columns differ in
size, small singular values lose their digits, and no run that moves each element by its own roundoff shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_probe.standards.tables import _classes
from tests.support.comparing import outcomes

DEVICES = pytest.mark.parametrize("device", ["cpu", "npu"])
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "svdvals": torch.linalg.svdvals,
    "eigvalsh": lambda matrix: torch.linalg.eigvalsh(matrix + matrix.mT),
    "pinv": torch.linalg.pinv,
    "lstsq": lambda matrix: torch.linalg.lstsq(matrix, torch.ones(len(matrix), 2)).solution,
}


def graded(size: int, seed: int) -> torch.Tensor:
    """A matrix whose first elements are 10^8 times smaller than its last ones."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.diag(10.0 ** torch.linspace(-2, 2, size))
    return sizes @ (torch.eye(size) + 0.3 * torch.randn(size, size, generator=generator)) @ sizes


def test_each_entry_is_looked_at() -> None:
    assert set(_classes()["backward_stable"]) == set(FUNCTIONS)


@pytest.mark.evidence
@DEVICES
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("size", [4, 16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_small_singular_values_lose_their_digits(name: str, size: int, seed: int, device: str) -> None:
    function = FUNCTIONS[name]
    how: dict[str, Any] = {"device": device, "diagnosed": False, "api": f"Torch.linalg.{name}", "backward": True}
    assert outcomes(function, function, (graded(size, seed),), **how) == ["pass", "pass"]


@DEVICES
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("off", [1e-4, -1e-4])
def test_what_is_off_by_more_than_the_matrix_explains_is_an_error(name: str, off: float, device: str) -> None:
    function = FUNCTIONS[name]
    how: dict[str, Any] = {"device": device, "diagnosed": False, "api": f"Torch.linalg.{name}"}
    matrix = torch.eye(16) + 0.1 * graded(16, 0).sign()
    assert outcomes(lambda x: function(x) * (1 + off), function, (matrix,), **how) == ["error"]


@DEVICES
@pytest.mark.parametrize("name", ["svdvals", "eigvalsh"])
def test_the_largest_one_keeps_its_digits(name: str, device: str) -> None:
    function, matrix = FUNCTIONS[name], graded(16, 0)
    largest = function(matrix).abs().argmax()

    def wrong(x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = function(x)
        return torch.where(torch.arange(len(found)) == largest, found * (1 + 1e-4), found)

    assert outcomes(wrong, function, (matrix,), device=device, diagnosed=False, api=f"Torch.linalg.{name}") == ["error"]
