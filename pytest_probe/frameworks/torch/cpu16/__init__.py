"""torch's own 16-bit CPU kernels, as they round inside: written down, since torch computes them nowhere in float64.

In: a 16-bit dtype. Out: what stands in for each kernel in a float64 run. `cpu_kernels` is the one door, and
`rows_in_turn` what a run in pieces needs of them.

A list of names with wider limits would let a scale error of 1 % pass.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from msgspec import Struct

from pytest_probe.frameworks.torch.cpu16.narrow import kernels, steps
from pytest_probe.frameworks.torch.cpu16.reductions import DividingMode
from pytest_probe.frameworks.torch.cpu16.row_sums import rows_in_turn
from pytest_probe.frameworks.torch.cpu16.sequential import ATOMIC

__all__ = ["CpuKernels", "cpu_kernels", "rows_in_turn"]

Functions = Mapping[Any, Callable[..., Any]]


class CpuKernels(Struct, frozen=True):
    """What stands in for torch's kernels in one dtype: steps for those whose steps a mode rounds, whole for those that
    round themselves, atomic for what another device may have in their place."""

    dtype: torch.dtype
    steps: Functions
    whole: Functions
    atomic: Functions

    def modes(self) -> Iterator[AbstractContextManager[Any]]:
        """Modes that the call runs under: they see what is no kernel of its own."""
        yield DividingMode()


@functools.cache
def cpu_kernels(dtype: torch.dtype) -> CpuKernels:
    """The CPU's kernels for a dtype; none of more or fewer than 16 bits round inside."""
    if dtype.itemsize != 2:
        return CpuKernels(dtype, steps(dtype), {}, {})
    atomic = {func: functools.partial(kernel, dtype) for func, kernel in ATOMIC.items()}
    return CpuKernels(dtype, steps(dtype), kernels(dtype), atomic)
