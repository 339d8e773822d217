"""Healthy kernels near a limit pass, and faults that are somewhat larger are errors."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.support.comparing import outcomes

pytestmark = pytest.mark.usefixtures("no_causes")

Function = Callable[..., Any]
DEVICES = ("cpu", "other")


def normal(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def verdict(
    function: Function, reference: Function, inputs: Any, device: str, api: str = "", allow: str = "none"
) -> str:
    [found] = outcomes(function, reference, inputs, device=device, allow=allow, api=api, key="chance")
    return found


def running(x: torch.Tensor) -> torch.Tensor:
    return x.cumsum(-1)


def one_by_one(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.add.accumulate(x.numpy(), axis=-1))


def farther_off(x: torch.Tensor, times: float) -> torch.Tensor:
    right = x.double().cumsum(-1)
    return (right + times * (one_by_one(x) - right)).float()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("shape", "times"), [((3000,), 20), ((8, 3000), 6), ((40, 3000), 6)])
def test_running_sums_one_by_one_pass_and_others_farther_off_do_not(
    shape: tuple[int, ...], times: float, device: str
) -> None:
    """The errors of one row are a random walk: of a right kernel they are four times as large in one as in another."""
    seeds = range(12 if len(shape) == 1 else 8)
    given = [[normal(*shape, seed=seed)] for seed in seeds]
    assert {verdict(one_by_one, running, inputs, device) for inputs in given} == {"pass"}
    assert {verdict(lambda x: farther_off(x, times), running, inputs, device) for inputs in given[4:8]} == {"error"}


def online(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, wrong: str = "") -> torch.Tensor:
    """Attention by blocks of keys with a running maximum, weights in the dtype of the values for the second product."""
    highest = torch.full((*query.shape[:-1], 1), -math.inf)
    total, result = torch.zeros_like(highest), torch.zeros(query.shape)
    for keys, values in zip(key.split(16, -2), value.split(16, -2), strict=True):
        scores = query.float() / math.sqrt(query.shape[-1]) @ keys.float().transpose(-2, -1)
        higher = torch.maximum(highest, scores.amax(-1, keepdim=True))
        weights, scale = (scores - higher).exp(), (highest - higher).exp()
        total = total * (1 if wrong == "total not rescaled" and highest.isfinite().all() else scale)
        total = total + weights.sum(-1, keepdim=True)
        rounded = weights.to(torch.bfloat16 if wrong == "weights in bfloat16" else value.dtype).float()
        result = result * scale + rounded @ values.float() * (1.002 if wrong == "weights too large" else 1)
        if wrong == "result in float16":
            result = result.half().float()
        highest = higher
    return (result / total).to(query.dtype)


@pytest.mark.parametrize("shape", [(1, 8, 256, 32), (1, 4, 512, 16)])
def test_attention_with_an_online_softmax_passes_in_float16_and_its_faults_do_not(shape: tuple[int, ...]) -> None:
    reference = F.scaled_dot_product_attention
    for seed in range(4):
        inputs = [normal(*shape, seed=3 * seed + part, dtype=torch.float16) for part in range(3)]
        assert verdict(online, reference, inputs, "cpu") != "error", seed
    for wrong in ("total not rescaled", "weights in bfloat16", "weights too large", "result in float16"):
        assert verdict(functools.partial(online, wrong=wrong), reference, inputs, "cpu") == "error", wrong


def approximate(x: torch.Tensor, error: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    return (torch.tanh(x.double()) * (1 + error(x.double()))).to(x.dtype)


# What the fast tanh of a device errs by: at most 2^-11 of the result, and not by chance.
WITHIN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "waves": lambda x: 2.0**-11 * torch.sin(7 * x),
    "pieces": lambda x: 2.0**-11 * (2 * (16 * x.abs() % 1) - 1),
    "always too small": lambda x: -(2.0**-11) * (16 * x.abs() % 1),
}
BEYOND: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "waves 32 times as high": lambda x: 2.0**-6 * torch.sin(7 * x),
    "a factor": lambda x: torch.full_like(x, 2.0**-9),
    "one element": lambda x: torch.where(torch.arange(x.numel()) == 77, 0.1, 0.0),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("api", ["", "Torch.tanh"])
def test_a_fast_tanh_passes_where_it_is_allowed(api: str, dtype: torch.dtype, device: str) -> None:
    inputs = [normal(20_000, seed=1, dtype=dtype) * 1.5]
    for name, error in WITHIN.items():
        found = verdict(lambda x, of=error: approximate(x, of), torch.tanh, inputs, device, api, "fast-math")
        assert found != "error", name
        assert verdict(lambda x, of=error: approximate(x, of), torch.tanh, inputs, device, api) == "error", name
    for name, error in BEYOND.items():
        found = verdict(lambda x, of=error: approximate(x, of), torch.tanh, inputs, device, api, "fast-math")
        assert found == "error", name
