"""Quotients that a kernel rounds before it truncates: another step near an edge passes, and no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch

from pytest_probe.registry import Registry
from tests.check.conftest import Make, normal
from tests.support.devices import Emulated

Kernel = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def rounded_first(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """As torch has it on an NVIDIA GPU: 2.998 is 3 in bfloat16."""
    return torch.trunc(a / b)


def rounded_to_nearest(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Another function."""
    return torch.round(a / b)


def one_row_off(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The next step, in the middle of one."""
    steps = torch.trunc(a.double() / b.double()).to(a.dtype)
    middle = ((a.double() / b.double()).frac().abs() - 0.5).abs() < 0.1
    steps[7] += (middle & (steps.abs() < 64))[7].to(a.dtype)
    return steps


class Dividing(Emulated):
    """A device with a kernel of its own for the truncated quotient."""

    def __init__(self, name: str, kernel: Kernel) -> None:
        super().__init__(name)
        self.kernel = kernel

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return self.kernel(args[0], args[1]) if function is torch.div else function(*args, **kwargs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize(
    ("kernel", "verdict"), [(rounded_first, "pass"), (rounded_to_nearest, "error"), (one_row_off, "error")]
)
def test_a_quotient_that_is_rounded_first(bench: Make, kernel: Kernel, verdict: str, dtype: torch.dtype) -> None:
    registry = Registry(devices={"npu9": lambda name: Dividing(name, kernel)})
    a, b = normal(200, 480, dtype=dtype), normal(200, 480, dtype=dtype)
    made = bench("Torch.div", torch.div, a, b, rounding_mode="trunc", registry=registry, request={"device": "npu9"})
    assert made.check().verdict == verdict
