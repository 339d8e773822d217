"""PyTorch: what stands in for kernels whose 16-bit versions round inside on torch's own CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from pytest_probe.frameworks.torch.attention import FLASH_BACKWARD, FLASH_FORWARD
from pytest_probe.frameworks.torch.cpu16 import attention, composed, sequential
from pytest_probe.frameworks.torch.cpu16.composed import COMPOSED
from pytest_probe.frameworks.torch.cpu16.formulas import FORMULAS, OF_DTYPE
from pytest_probe.frameworks.torch.cpu16.kernels import KERNELS
from pytest_probe.frameworks.torch.cpu16.reductions import REDUCTIONS
from pytest_probe.frameworks.torch.cpu16.sequential import SCATTERING


@functools.cache
def steps(dtype: torch.dtype) -> Mapping[Any, Callable[..., Any]]:
    """Steps between kernels: a mode sees them, and rounds what passes from one to the next."""
    known = {**FORMULAS, **OF_DTYPE.get(dtype, {}), **COMPOSED}
    return known | {variant: composed.in_place(known[func]) for func in known for variant in in_place_twins(func)}


@functools.cache
def kernels(dtype: torch.dtype) -> Mapping[Any, Callable[..., Any]]:
    """Kernels to run in place of torch's own, which round to dtype themselves."""
    fused: Mapping[Any, Callable[..., Any]] = {
        FLASH_FORWARD: attention.cpu_flash_forward,
        FLASH_BACKWARD: attention.cpu_flash_backward,
    }
    known = {**SCATTERING, **REDUCTIONS, **KERNELS, **fused}
    known |= {variant: sequential.in_place(known[func]) for func in known for variant in in_place_twins(func)}
    return {func: functools.partial(kernel, dtype) for func, kernel in known.items()}


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
