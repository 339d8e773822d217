"""PyTorch: what stands in for kernels whose 16-bit versions round inside on torch's own CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from pytest_probe.frameworks import torch_attention
from pytest_probe.frameworks.torch_composed import COMPOSED, COMPOSED_IN_PLACE
from pytest_probe.frameworks.torch_formulas import FORMULAS, OF_DTYPE
from pytest_probe.frameworks.torch_kernels import KERNELS
from pytest_probe.frameworks.torch_sequential import SCATTERING
from pytest_probe.frameworks.torch_windows import WINDOWS


@functools.cache
def steps(dtype: torch.dtype) -> Mapping[Any, Callable[..., Any]]:
    """Steps between kernels: a mode sees them, and rounds what passes from one to the next."""
    return {**FORMULAS, **OF_DTYPE.get(dtype, {}), **COMPOSED, **COMPOSED_IN_PLACE}


@functools.cache
def kernels(dtype: torch.dtype) -> Mapping[Any, Callable[..., Any]]:
    """Kernels to run in place of torch's own, which round to dtype themselves."""
    attention: Mapping[Any, Callable[..., Any]] = {
        torch_attention.FORWARD: torch_attention.narrow_forward,
        torch_attention.BACKWARD: torch_attention.narrow_backward,
    }
    known = {**SCATTERING, **WINDOWS, **KERNELS, **attention}
    return {func: functools.partial(kernel, dtype) for func, kernel in known.items()}
