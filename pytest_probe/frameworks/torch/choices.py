"""PyTorch: which elements a function chooses, and what it chooses them from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from pytest_probe.frameworks.torch.arrays import to_array
from pytest_probe.frameworks.torch.dispatch import DispatchMode
from pytest_probe.model.comparison import Choice

ATEN = torch.ops.aten
# Kernels that choose: the place of the argument `dim` and its default, None for the flattened tensor.
CHOOSING: Mapping[Any, tuple[int, int | None]] = {
    ATEN.topk.default: (2, -1),
    ATEN.sort.default: (1, -1),
    ATEN.sort.stable: (2, -1),
    ATEN.argmax.default: (1, None),
    ATEN.argmin.default: (1, None),
    ATEN.max.dim: (1, None),
    ATEN.min.dim: (1, None),
    ATEN.kthvalue.default: (2, -1),
    ATEN.median.dim: (1, None),
    ATEN.nanmedian.dim: (1, None),
    ATEN.mode.default: (1, -1),
    ATEN.cummax.default: (1, None),
    ATEN.cummin.default: (1, None),
}


def noting(function: Callable[..., Any], noted: list[Choice]) -> Callable[..., Any]:
    """The function, which adds to `noted` each choice that it makes."""

    def called(*args: Any, **kwargs: Any) -> Any:
        with _Noting(noted):
            return function(*args, **kwargs)

    return called


class _Noting(DispatchMode):
    def __init__(self, noted: list[Choice]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._noted = noted

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in CHOOSING:
            place, default = CHOOSING[func]
            dim = args[place] if len(args) > place else (kwargs or {}).get("dim", default)
            indices = result[1] if isinstance(result, (tuple, list)) else result
            self._noted.append(Choice(to_array(args[0]).copy(), dim, to_array(indices).copy()))
        return result
