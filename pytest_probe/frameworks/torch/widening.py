"""PyTorch: what changes in a run of a user's reference.

Casts and factories of floating dtypes that are narrower than the run's give that of the run. A border between two
kernels rounds values and their gradient, in runs that are asked to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from pytest_probe.frameworks.torch.dispatch import DispatchMode
from pytest_probe.frameworks.widened import border_dtype

# By the dtype of the run.
WIDE: Mapping[str, Mapping[torch.dtype, torch.dtype]] = {
    "float64": {
        torch.float16: torch.float64,
        torch.bfloat16: torch.float64,
        torch.float32: torch.float64,
        torch.complex32: torch.complex128,
        torch.complex64: torch.complex128,
    },
    "float32": {
        torch.float16: torch.float32,
        torch.bfloat16: torch.float32,
        torch.complex32: torch.complex64,
    },
}
# The dtype of a kernel that reads the bits of its tensor is no cast.
BITS = (torch.ops.aten.view.dtype,)


class _Widening(DispatchMode):
    def __init__(self, dtype: str, casts: list[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._wider = WIDE[dtype]
        self._casts = casts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in BITS:
            wide = tuple(self._wide(value, func) for value in args)
            kwargs = {key: self._wide(value, func) for key, value in (kwargs or {}).items()}
            return func(*wide, **kwargs)
        return func(*args, **(kwargs or {}))

    def _wide(self, value: Any, func: Any) -> Any:
        if not isinstance(value, torch.dtype) or value not in self._wider:
            return value
        self._casts.append(str(func))
        return self._wider[value]


@contextmanager
def widening(dtype: str, casts: list[str]) -> Iterator[None]:
    """In here a kernel that is asked for a narrower floating dtype gives dtype; casts gets its name."""
    with _Widening(dtype, casts):
        yield


def border(tensor: torch.Tensor) -> torch.Tensor:
    """See Framework.border."""
    dtype = border_dtype()
    if not dtype or not tensor.is_floating_point():
        return tensor
    passed: torch.Tensor = _Border.apply(tensor, getattr(torch, dtype))  # type: ignore[no-untyped-call]
    return passed


class _Border(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        context.dtype = dtype
        return _rounded(tensor, dtype)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _rounded(gradient, context.dtype), None


def _rounded(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    # In a reference's run casts give float64: this one narrows.
    with _disable_current_modes():
        return tensor.to(dtype).to(tensor.dtype)
