"""Kernels that earlier releases of torch round inside: written as those run, and used where they are installed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pytest_probe.check import Checker, Conditions
from pytest_probe.frameworks.torch.cpu16 import earlier
from pytest_probe.frameworks.torch.cpu16.earlier import Earlier
from pytest_probe.frameworks.torch.cpu16.sequential import rounded_once
from pytest_probe.registry import Registry
from tests.frameworks.torch.cpu16.rounding import DTYPES
from tests.support.calls.computing import COMPUTING
from tests.support.calls.making import Maker

KNOWN = {**earlier.KERNELS, **earlier.STEPS}
BF16 = torch.bfloat16


@pytest.mark.compat
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["addmv", "softmax", "log_softmax", "cross_entropy", "embedding_bag", "huber_loss"])
def test_no_release_has_a_false_error(name: str, dtype: str) -> None:
    checker = Checker(Conditions(device="cpu", allow=("none",)), Registry.default())
    for making in COMPUTING[name]:
        for size, seed in (((3, 5), 3), ((3, 5), 7), ((37, 69), 1), ((37, 69), 5)):
            call = making(Maker(dtype, *size, seed))
            found = checker.compare(call.function, call.function, call.args, call.kwargs, api=call.api, backward=True)
            assert [verdict.reason for verdict in found if verdict.verdict == "error"] == []


@pytest.mark.compat
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("earlier_kernel", KNOWN.values(), ids=map(str, KNOWN))
def test_a_witness_tells_one_kernel_from_the_other(earlier_kernel: Earlier, dtype: torch.dtype) -> None:
    """What stands in for the kernel of an earlier release gives of the witness what that gives: another number."""
    exact = Earlier(lambda *args: earlier_kernel.kernel(*_single(args)).to(dtype), _none, earlier_kernel.witness)
    assert not exact.is_installed(dtype)


def _single(args: Any) -> list[Any]:
    """In float32, where products of 16-bit numbers are exact."""
    narrow = [torch.float32 if arg in DTYPES else arg for arg in args if not isinstance(arg, torch.Tensor)]
    return [*(arg.float() if arg.dtype in DTYPES else arg for arg in args if isinstance(arg, torch.Tensor)), *narrow]


def _none(*args: Any) -> Any:
    return NotImplemented


def test_sums_of_a_softmax_are_rounded() -> None:
    grad, y = torch.tensor([1.0, 2.0**-9]).double(), torch.ones(2).double()
    assert earlier.softmax_backward(BF16, grad, y, 0, BF16).tolist() == [0.0, 2.0**-9 - 1]
    assert earlier.log_softmax_backward(BF16, grad, y * 0, 0, BF16).tolist() == [0.0, 2.0**-9 - 1]
    assert earlier.softmax_backward(BF16, grad[None], y[None], 0, BF16) is NotImplemented


def test_products_are_rounded_and_their_sums_are_not() -> None:
    x, y = torch.randn(2, 3, 69, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(BF16).double()
    wanted = rounded_once(x[0] * y[0], BF16).sum()
    assert earlier.dot(BF16, x[0], y[0]) == wanted != torch.dot(x[0], y[0])
    assert earlier.addmv(BF16, y.new_ones(3), x, y[0], alpha=0.5)[0] == 1 + wanted * 0.5
    assert earlier.addmv(BF16, y.new_ones(3), x, y[0], beta=0) is NotImplemented
    assert earlier.addmv(BF16, y.new_ones(3), x.T.contiguous().T, y[0]) is NotImplemented
    bags = torch.tensor([0, 0, 0])
    made = earlier.weights_of_bags_backward(BF16, y, x, torch.arange(3), torch.tensor([0]), bags, 0, 2)
    assert (made[0], made[2]) == (wanted, 0)
