"""What computes in float32 inside, 16-bit tensors or float32 results of them: no 16-bit steps excuse it, on the CPU as
elsewhere."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.support.comparing import outcomes

pytestmark = pytest.mark.usefixtures("causes_once")

Tensor = torch.Tensor
Function = Callable[[Tensor], Tensor]
LABELS = torch.arange(32) * 7 % 64


def entropy(x: Tensor) -> Tensor:
    return F.cross_entropy(x, LABELS, reduction="none")


def with_z(x: Tensor) -> Tensor:
    return entropy(x).mean() + 1e-4 * torch.logsumexp(x, -1).square().mean()


def deviation(x: Tensor, eps: float = 1e-3) -> Tensor:
    return torch.rsqrt(x.var(-1, correction=0) + eps)


def norm(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x, dim=-1)


def norm_scale(x: Tensor) -> Tensor:
    return 1 / (norm(x) + 1e-6)


def blocks(x: Tensor) -> Tensor:
    return x.reshape(32, 8, 8).sum(-1)


def sums(x: Tensor) -> Tensor:
    return x.sum(-1)


# The reference, and faults of its kernel, which gives float32.
KERNELS: dict[str, tuple[Function, dict[str, Function]]] = {
    "statistics": (deviation, {
        "in 16 bit": lambda x: deviation(x).float(),
        "without eps": lambda x: deviation(x.float(), 0.0),
        "of one number fewer": lambda x: deviation(x.float()[:, 1:]),
    }),
    "cross entropy": (entropy, {
        "in 16 bit": lambda x: entropy(x).float(),
        "0.1 % too large": lambda x: 1.001 * entropy(x.float()),
        "another label": lambda x: entropy(x.float().roll(1, -1)),
    }),
    "cross entropy with z loss": (with_z, {
        "in 16 bit": lambda x: with_z(x).float(),
        "z loss lost": lambda x: entropy(x.float()).mean(),
        "0.1 % too large": lambda x: 1.001 * with_z(x.float()),
    }),
    "clipping": (norm_scale, {
        "norm in 16 bit": lambda x: 1 / (norm(x).float() + 1e-6),
        "a column lost": lambda x: norm_scale(x.float()[:, 1:]),
        "0.1 % too large": lambda x: 1.001 * norm_scale(x.float()),
    }),
    "sums": (sums, {
        "partial sums in 16 bit": lambda x: blocks(x).float().sum(-1),
        "in 16 bit": lambda x: x.sum(-1).float(),
        "the last lost": lambda x: x.float()[:, :-1].sum(-1),
    }),
}  # fmt: skip
FAULTS = [(name, fault) for name, (_, faults) in KERNELS.items() for fault in faults]
PLACES = pytest.mark.parametrize(
    ("dtype", "device"), [(torch.bfloat16, "cpu"), (torch.bfloat16, "other"), (torch.float16, "cpu")], ids=str
)


def verdict(kernel: Function, reference: Function, dtype: torch.dtype, device: str) -> str:
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(1)).to(dtype) * 2
    # The reference takes its dtypes from the arguments, so that it says nothing of the result's.
    [found] = outcomes(kernel, reference, [x], device=device, allow="none", key="wide results", dtype=False)
    return found


@PLACES
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_that_computes_in_float32_passes(name: str, dtype: torch.dtype, device: str) -> None:
    reference, _ = KERNELS[name]
    assert verdict(lambda x: reference(x.float()), reference, dtype, device) == "pass"


@PLACES
@pytest.mark.parametrize(("name", "fault"), FAULTS)
def test_a_fault_is_an_error(name: str, fault: str, dtype: torch.dtype, device: str) -> None:
    reference, faults = KERNELS[name]
    assert verdict(faults[fault], reference, dtype, device) == "error"


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


def judged(device: str, function: Any, reference: Any, args: list[Any], api: str) -> list[str]:
    return outcomes(function, reference, args, device=device, allow="none", api=api, backward=True)


NORMS = {
    "torch's own": (F.rms_norm, "pass"),
    "one kernel": (once(rms_norm), "pass"),
    "0.5 % too large": (once(lambda *args: 1.005 * rms_norm(*args)), "error"),
    "statistics in 16 bit": (rms_norm, "error"),
}


@DTYPES
@pytest.mark.parametrize("scale", [1.0, 400.0])
@pytest.mark.parametrize("kernel", NORMS)
def test_only_an_rms_norm_that_squares_in_float32_passes(kernel: str, scale: float, dtype: torch.dtype) -> None:
    """Squares of 400 are beyond float16: rounded there, they would excuse a kernel that gives zeros."""
    function, verdict = NORMS[kernel]
    args = [normal(32, 64, scale=scale).to(dtype), (64,), normal(64).to(dtype), 1e-5]
    assert judged("cpu", function, F.rms_norm, args, "Functional.rms_norm") == [verdict] * 2


@pytest.mark.parametrize("place", ["cpu", "other"])
def test_zeros_are_no_rounding(place: str) -> None:
    """Nor are they on a device that may round between its steps: who divides by inf has lost the number."""
    args = [normal(32, 64, scale=400.0).half(), (64,), normal(64).half(), 1e-5]
    found = judged(place, lambda *args: args[0] * args[2] * 0, F.rms_norm, args, "Functional.rms_norm")
    assert found == ["error"] * 2


@DTYPES
def test_attention_without_a_batch(dtype: torch.dtype) -> None:
    """torch's CPU casts what has three dimensions to float32, and takes no other kernel than it has for that."""
    api, args = "Functional.scaled_dot_product_attention", [normal(4, 30, 16).to(dtype) for _ in range(3)]
    attend = F.scaled_dot_product_attention
    assert judged("cpu", attend, attend, args, api) == ["pass"] * 2
    assert judged("cpu", once(attend), attend, args, api) == ["pass"] * 2
    faulty = once(functools.partial(attend, scale=1.001 / 4))
    assert judged("cpu", faulty, attend, args, api) == ["error"] * 2


@DTYPES
def test_the_gradient_of_renorm_is_no_error_and_a_scaled_one_is(dtype: torch.dtype) -> None:
    """Its forward is one kernel; its backward takes norms in float32."""
    args = [normal(8, 40, scale=3.0).to(dtype), 2.0, 0, 5.0]
    assert "error" not in judged("cpu", torch.renorm, torch.renorm, args, "Torch.renorm")
    faulty = once(lambda *args: 1.001 * torch.renorm(*args))
    assert judged("cpu", faulty, torch.renorm, args, "Torch.renorm")[1] == "error"
