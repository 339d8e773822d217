"""Calls of float32 and float64 at once: steps before the two meet compute in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_probe.check import Checker, RunRequest
from pytest_probe.registry import Registry
from tests.support.devices import Emulated

LOSS = torch.nn.functional.poisson_nll_loss


def verdict(function: Callable[..., Any], reference: Callable[..., Any], device: str) -> str:
    registry = Registry.default()
    registry.devices["other"] = Emulated
    generator = torch.Generator().manual_seed(0)
    single = torch.randn(4, 30, generator=generator)
    double = torch.rand(4, 30, generator=generator, dtype=torch.float64)
    checker = Checker(RunRequest(device=device), registry)
    (found, *_) = checker.compare(function, reference, [single, double], {}, api="", backward=False)
    return found.verdict


@pytest.mark.parametrize(("device", "expected"), [("cpu", "warning"), ("other", "pass")])
def test_what_float32_explains_is_no_error(device: str, expected: str) -> None:
    """The CPU alone cannot tell whether it should; beside another device its own result does."""
    assert verdict(LOSS, LOSS, device) == expected


@pytest.mark.parametrize("device", ["cpu", "other"])
def test_what_float32_does_not_explain_is_an_error(device: str) -> None:
    assert verdict(lambda x, y: LOSS(x, y) * (1 + 1e-5), LOSS, device) == "error"


@pytest.mark.parametrize("device", ["cpu", "other"])
def test_one_step_widens_first(device: str) -> None:
    assert verdict(torch.add, torch.add, device) == "pass"
