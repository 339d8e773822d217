"""Runs a call on torch's own CPU in 16 bit and as its rounded steps, to see whether they give the same bits."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from pytest_probe.frameworks.torch.cpu16.reductions import DividingMode
from pytest_probe.frameworks.torch.rounding import StepsMode

DTYPES = (torch.bfloat16, torch.float16)


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    yield
    torch.set_num_threads(before)


def different(function: Callable[..., torch.Tensor], args: Sequence[Any], dtype: torch.dtype) -> list[int]:
    """How many elements of the output, and of each gradient, the steps give otherwise than the kernel."""
    kernel = _results(function, args, dtype)
    with DividingMode(), StepsMode(dtype, fine=False):
        steps = _results(function, [_wide(value) for value in args], dtype)
    return [int((~_same(one, other.to(dtype))).sum()) for one, other in zip(kernel, steps, strict=True)]


def _results(function: Callable[..., torch.Tensor], args: Sequence[Any], dtype: torch.dtype) -> list[torch.Tensor]:
    leaves = [value.detach().requires_grad_() if _is_float(value) else value for value in args]
    output = function(*leaves)
    incoming = torch.randn(output.shape, generator=torch.Generator().manual_seed(0)).to(dtype).to(output.dtype)
    return [output.detach(), *torch.autograd.grad(output, [leaf for leaf in leaves if _is_float(leaf)], incoming)]


def _wide(value: Any) -> Any:
    if not _is_float(value):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=torch.float64).copy_(value)


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _same(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one == other) | (one.isnan() & other.isnan())
