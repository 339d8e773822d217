"""PyTorch: casts and factories of narrower floating dtypes give float64."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from pytest_probe.frameworks.torch.dispatch import DispatchMode

WIDE: Mapping[torch.dtype, torch.dtype] = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
# The dtype of a kernel that reads the bits of its tensor is no cast.
BITS = (torch.ops.aten.view.dtype,)


class _Widening(DispatchMode):
    def __init__(self, casts: list[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._casts = casts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in BITS:
            wide = tuple(self._wide(value, func) for value in args)
            kwargs = {key: self._wide(value, func) for key, value in (kwargs or {}).items()}
            return func(*wide, **kwargs)
        return func(*args, **(kwargs or {}))

    def _wide(self, value: Any, func: Any) -> Any:
        if not isinstance(value, torch.dtype) or value not in WIDE:
            return value
        self._casts.append(str(func))
        return WIDE[value]


@contextmanager
def widening(casts: list[str]) -> Iterator[None]:
    """In here a kernel that is asked for a narrower floating dtype gives float64; casts gets its name."""
    with _Widening(casts):
        yield
