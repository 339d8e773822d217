"""float32 results of 16-bit tensors: what computes them in 16 bit inside is an error, on the CPU as elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from pytest_probe.check import Checker, RunRequest
from pytest_probe.registry import Registry
from tests.support.devices import Emulated

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
DTYPES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
DEVICES = pytest.mark.parametrize("device", ["cpu", "other"])


def verdict(kernel: Function, reference: Function, dtype: torch.dtype, device: str) -> str:
    registry = Registry.default()
    registry.devices["other"] = Emulated
    checker = Checker(RunRequest(device=device, allow=("none",)), registry)
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(1)).to(dtype) * 2
    # The reference takes its dtypes from the arguments, so that it says nothing of the result's.
    [found] = checker.compare(kernel, reference, [x], key="wide results", dtype=False)
    return found.verdict


@DEVICES
@DTYPES
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_that_computes_in_float32_passes(name: str, dtype: torch.dtype, device: str) -> None:
    reference, _ = KERNELS[name]
    assert verdict(lambda x: reference(x.float()), reference, dtype, device) == "pass"


@DEVICES
@DTYPES
@pytest.mark.parametrize(("name", "fault"), FAULTS)
def test_a_fault_is_an_error(name: str, fault: str, dtype: torch.dtype, device: str) -> None:
    reference, faults = KERNELS[name]
    assert verdict(faults[fault], reference, dtype, device) == "error"
