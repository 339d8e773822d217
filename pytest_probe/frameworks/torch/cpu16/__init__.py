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

from pytest_probe.frameworks.torch.attention import FLASH_BACKWARD, FLASH_FORWARD
from pytest_probe.frameworks.torch.cpu16.attention import cpu_flash_backward, cpu_flash_forward
from pytest_probe.frameworks.torch.cpu16.formulas import COMPOSED, FORMULAS, OF_DTYPE
from pytest_probe.frameworks.torch.cpu16.kernels import KERNELS
from pytest_probe.frameworks.torch.cpu16.reductions import REDUCTIONS, DividingMode
from pytest_probe.frameworks.torch.cpu16.row_sums import rows_in_turn
from pytest_probe.frameworks.torch.cpu16.sequential import ATOMIC, SCATTERING, index_put

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
    steps = _with_twins({**FORMULAS, **OF_DTYPE.get(dtype, {}), **COMPOSED})
    if dtype.itemsize != 2:
        return CpuKernels(dtype, steps, {}, {})
    atomic = {func: functools.partial(kernel, dtype) for func, kernel in ATOMIC.items()}
    return CpuKernels(dtype, steps, kernels(dtype), _with_twins(atomic))


@functools.cache
def kernels(dtype: torch.dtype) -> Functions:
    """Kernels to run in place of torch's own, which round to dtype themselves."""
    known: Functions = {
        **SCATTERING,
        **REDUCTIONS,
        **KERNELS,
        FLASH_FORWARD: cpu_flash_forward,
        FLASH_BACKWARD: cpu_flash_backward,
    }
    made: Functions = {func: functools.partial(kernel, dtype) for func, kernel in known.items()}
    return _with_twins(
        {**made, torch.ops.aten._index_put_impl_.default: _in_place(functools.partial(index_put, dtype))}
    )


def _with_twins(known: Functions) -> Functions:
    return {**known, **{twin: _in_place(known[func]) for func in known for twin in in_place_twins(func)}}


def in_place_twins(func: Any) -> Iterator[Any]:
    """What does the same and writes to its first argument: another operator of the same arguments."""
    name = func._schema.name.removeprefix("aten::")
    packet = getattr(torch.ops.aten, f"{name}_", None)
    for overload in packet.overloads() if packet is not None else ():
        variant = getattr(packet, overload)
        if _takes(variant) == _takes(func):
            yield variant


def _takes(func: Any) -> list[tuple[str, str]]:
    return [(argument.name, str(argument.type)) for argument in func._schema.arguments]


def _in_place(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The same for the version that writes to its first argument."""

    def function(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        result = kernel(x, *args, **kwargs)
        return result if result is NotImplemented else x.copy_(result)

    return function
