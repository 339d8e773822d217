"""Sums of many terms, of which many are equal: what another order loses passes, and a fault of that size does not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from benchmarks.large_faults import changed
from tests.check.conftest import normal
from tests.support.large_calls import outputs

Tensor = torch.Tensor
BF16, HALF, SINGLE = torch.bfloat16, torch.float16, torch.float32
ROWS = 4000


def in_sequence(terms: Tensor) -> Tensor:
    return torch.from_numpy(np.add.accumulate(terms.numpy(), axis=0)[-1].copy())


def in_blocks(terms: Tensor) -> Tensor:
    return in_sequence(torch.stack([in_sequence(block) for block in terms.split(512)]))


def in_lanes(terms: Tensor, lanes: int = 4) -> Tensor:
    return in_sequence(torch.stack([in_sequence(terms[lane::lanes]) for lane in range(lanes)]))


def reversed_terms(terms: Tensor) -> Tensor:
    return in_sequence(terms.flip(0))


def reversed_lanes(terms: Tensor) -> Tensor:
    return in_lanes(terms.flip(0))


def of_softmax(x: Tensor, add: Callable[[Tensor], Tensor] = in_blocks) -> Tensor:
    terms = torch.exp(x.float() - x.float().amax(0))
    return (terms / add(terms)).to(x.dtype)


def judged(call: Callable[..., Tensor], reference: Callable[..., Tensor], x: Tensor, api: str) -> str:
    """The verdict on a call over the first dimension, on another device than the CPU."""
    return outputs(call, reference, [x, 0], "npu", api=api)["output.0"].verdict


def factor(x: Tensor) -> float:
    """A fault of the device alone."""
    return 1.0 if x.dtype is torch.float64 else 1.01


def verdict(x: Tensor, kernel: Callable[[Tensor], Tensor]) -> str:
    """On a device whose softmax is this kernel."""

    def call(x: Tensor, dim: int) -> Tensor:
        return F.softmax(x, dim) if x.dtype is torch.float64 else kernel(x)

    return judged(call, F.softmax, x, "Functional.softmax")


def few_values(dtype: torch.dtype) -> Tensor:
    return ((normal(ROWS, 8) * 3).round() / 7).to(dtype)


@pytest.mark.parametrize("dtype", [BF16, HALF, SINGLE], ids=str)
@pytest.mark.parametrize("add", [in_sequence, in_blocks, reversed_lanes])
def test_any_order_of_equal_terms_passes(add: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    for x in (few_values(dtype), torch.full((ROWS, 8), 0.3, dtype=dtype)):
        assert verdict(x, lambda x: of_softmax(x, add)) == "pass"


@pytest.mark.parametrize("add", [in_sequence, in_lanes, reversed_terms])
def test_terms_that_are_equal_less_their_mean_are_known(add: Callable[[Tensor], Tensor]) -> None:
    """Half of what a ReLU gives is zero."""

    def kernel(x: Tensor, dim: int) -> Tensor:
        if x.dtype is torch.float64:
            return torch.var(x, dim)
        off = x - add(x) / len(x)
        return add(off * off) / (len(x) - 1)

    x = normal(20_000, 16).relu()
    assert judged(kernel, torch.var, x, "Torch.var") in {"pass", "warning"}
    assert judged(lambda x, dim: kernel(x, dim) * factor(x), torch.var, x, "Torch.var") == "error"


@pytest.mark.parametrize("lanes", [2, 4, 32])
def test_a_sum_in_lanes_passes_and_a_factor_does_not(lanes: int) -> None:
    x = torch.full((320_000, 1), 0.37)

    def kernel(x: Tensor, dim: int) -> Tensor:
        return torch.sum(x, dim) if x.dtype is torch.float64 else in_lanes(x, lanes)

    assert judged(kernel, torch.sum, x, "Torch.sum") in {"pass", "warning"}
    assert judged(lambda x, dim: kernel(x, dim) * factor(x), torch.sum, x, "Torch.sum") == "error"


FAULTS: dict[str, Callable[[Tensor], Tensor]] = {
    "all, 1 %": lambda right: right * 1.01,
    "one small element, 20 %": changed((30, 5), lambda value: value * 1.2),
    "a column, 2 %": changed((slice(None), 3), lambda value: value * 1.02),
    "a tail": changed(slice(-4, None), torch.zeros_like),
}


@pytest.mark.parametrize("dtype", [BF16, HALF, SINGLE], ids=str)
@pytest.mark.parametrize("fault", FAULTS)
def test_that_many_terms_are_equal_excuses_no_fault(fault: str, dtype: torch.dtype) -> None:
    """In 16 bit most numbers of a large tensor have copies."""
    for x in (few_values(dtype), (normal(ROWS, 8) * 3).to(dtype)):
        assert verdict(x, lambda x: FAULTS[fault](of_softmax(x))) == "error"


OF_LONG: dict[str, Callable[[Tensor], Tensor]] = {
    "healthy": torch.clone,
    "all, 2 %": lambda right: right * 1.02,
    "a column, 2 %": changed((slice(None), 3), lambda value: value * 1.02),
    "a tail": changed(slice(-4, None), torch.zeros_like),
}


@pytest.mark.parametrize("name", OF_LONG)
def test_what_the_cpu_loses_in_a_long_sum_takes_nothing_from_what_it_rounds(name: str) -> None:
    """In 16 bit it rounds exponentials before it divides them by a sum of 30,000, which it adds in float32."""
    found = verdict((normal(30_000, 8) * 3).to(BF16), lambda x: OF_LONG[name](F.softmax(x, 0)))
    assert found == ("pass" if name == "healthy" else "error")
