"""PyTorch: what stands in for kernels whose 16-bit versions round inside on torch's own CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from pytest_probe.frameworks import torch_attention, torch_composed, torch_sequential
from pytest_probe.frameworks.torch_composed import COMPOSED
from pytest_probe.frameworks.torch_formulas import FORMULAS, OF_DTYPE
from pytest_probe.frameworks.torch_grids import GRIDS
from pytest_probe.frameworks.torch_kernels import KERNELS
from pytest_probe.frameworks.torch_reductions import REDUCTIONS
from pytest_probe.frameworks.torch_sequential import SCATTERING
from pytest_probe.frameworks.torch_special import SPECIAL
from pytest_probe.frameworks.torch_windows import WINDOWS


@functools.cache
def steps(dtype: torch.dtype) -> Mapping[Any, Callable[..., Any]]:
    """Steps between kernels: a mode sees them, and rounds what passes from one to the next."""
    known = {**FORMULAS, **OF_DTYPE.get(dtype, {}), **COMPOSED, **GRIDS}
    return known | {twin: torch_composed.in_place(known[func]) for func in known for twin in in_place_twins(func)}


@functools.cache
def kernels(dtype: torch.dtype) -> Mapping[Any, Callable[..., Any]]:
    """Kernels to run in place of torch's own, which round to dtype themselves."""
    attention: Mapping[Any, Callable[..., Any]] = {
        torch_attention.FORWARD: torch_attention.narrow_forward,
        torch_attention.BACKWARD: torch_attention.narrow_backward,
    }
    known = {**SCATTERING, **REDUCTIONS, **WINDOWS, **KERNELS, **SPECIAL, **attention}
    known |= {twin: torch_sequential.in_place(known[func]) for func in known for twin in in_place_twins(func)}
    return {func: functools.partial(kernel, dtype) for func, kernel in known.items()}


def in_place_twins(func: Any) -> Iterator[Any]:
    """What does the same and writes to its first argument: another operator of the same arguments."""
    name = func._schema.name.removeprefix("aten::")
    packet = getattr(torch.ops.aten, f"{name}_", None)
    for overload in packet.overloads() if packet is not None else ():
        twin = getattr(packet, overload)
        if _takes(twin) == _takes(func):
            yield twin


def _takes(func: Any) -> list[tuple[str, str]]:
    return [(argument.name, str(argument.type)) for argument in func._schema.arguments]
