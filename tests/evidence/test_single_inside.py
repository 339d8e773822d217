"""Calls on 16-bit tensors that compute in float32 inside, step by step: no rounding between steps excuses them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_probe.check import Checker, RunRequest
from pytest_probe.registry import Registry
from tests.support.devices import Emulated

Tensor = torch.Tensor
DTYPES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)


def normal(*shape: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def once(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """In float32, rounded once."""

    def rounded(*args: Any) -> Tensor:
        wide = (value.float() if isinstance(value, Tensor) else value for value in args)
        return function(*wide).to(args[0].dtype)

    return rounded


def rms_norm(x: Tensor, shape: tuple[int, ...], weight: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def outcomes(place: str, function: Any, reference: Any, args: list[Any], api: str) -> list[str]:
    registry = Registry.default()
    registry.devices["other"] = Emulated
    checker = Checker(RunRequest(device=place, allow=("none",)), registry)
    return [found.verdict for found in checker.compare(function, reference, args, api=api, backward=True)]


KERNELS = {
    "torch's own": (F.rms_norm, "pass"),
    "one kernel": (once(rms_norm), "pass"),
    "0.5 % too large": (once(lambda *args: 1.005 * rms_norm(*args)), "error"),
    "statistics in 16 bit": (rms_norm, "error"),
}


@DTYPES
@pytest.mark.parametrize("scale", [1.0, 400.0])
@pytest.mark.parametrize("kernel", KERNELS)
def test_only_an_rms_norm_that_squares_in_float32_passes(kernel: str, scale: float, dtype: torch.dtype) -> None:
    """Squares of 400 are beyond float16: rounded there, they would excuse a kernel that gives zeros."""
    function, verdict = KERNELS[kernel]
    args = [normal(32, 64, scale=scale).to(dtype), (64,), normal(64).to(dtype), 1e-5]
    assert outcomes("cpu", function, F.rms_norm, args, "Functional.rms_norm") == [verdict] * 2


@pytest.mark.parametrize("place", ["cpu", "other"])
def test_zeros_are_no_rounding(place: str) -> None:
    """Nor are they on a device that may round between its steps: who divides by inf has lost the number."""
    args = [normal(32, 64, scale=400.0).half(), (64,), normal(64).half(), 1e-5]
    found = outcomes(place, lambda *args: args[0] * args[2] * 0, F.rms_norm, args, "Functional.rms_norm")
    assert found == ["error"] * 2


@DTYPES
def test_attention_without_a_batch(dtype: torch.dtype) -> None:
    """torch's CPU casts what has three dimensions to float32, and takes no other kernel than it has for that."""
    api, args = "Functional.scaled_dot_product_attention", [normal(4, 30, 16).to(dtype) for _ in range(3)]
    attend = F.scaled_dot_product_attention
    assert outcomes("cpu", attend, attend, args, api) == ["pass"] * 2
    assert outcomes("cpu", once(attend), attend, args, api) == ["pass"] * 2
    faulty = once(functools.partial(attend, scale=1.001 / 4))
    assert outcomes("cpu", faulty, attend, args, api) == ["error"] * 2


@DTYPES
def test_the_gradient_of_renorm_is_no_error_and_a_scaled_one_is(dtype: torch.dtype) -> None:
    """Its forward is one kernel; its backward takes norms in float32."""
    args = [normal(8, 40, scale=3.0).to(dtype), 2.0, 0, 5.0]
    assert "error" not in outcomes("cpu", torch.renorm, torch.renorm, args, "Torch.renorm")
    faulty = once(lambda *args: 1.001 * torch.renorm(*args))
    assert outcomes("cpu", faulty, torch.renorm, args, "Torch.renorm")[1] == "error"
