"""PyTorch: modes that see every kernel, without what torch imports to keep its compiler out of them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_COMPILER = "torch._dynamo"
_disabling: Callable[..., Callable[..., Any]] | None = getattr(torch, "_disable_dynamo", None)


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Base of our modes. torch wraps what a mode does with each kernel so that its compiler leaves it alone, and
    imports the compiler for that, which takes 0.9 s: here it is asked only where something has imported it."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)  # type: ignore[no-untyped-call]
        method: Callable[..., Any] | None = cls.__dict__.get("__torch_dispatch__")
        if method is None or _disabling is None:
            return
        disabled = _disabling(method, recursive=True)

        @functools.wraps(method)
        def seen(*args: Any, **kwargs: Any) -> Any:
            return (disabled if _COMPILER in sys.modules else method)(*args, **kwargs)

        cls.__torch_dispatch__ = seen  # type: ignore[method-assign]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch's own name for it; False: it wraps nothing."""
        return False


class KernelsBy(DispatchMode):
    """A mode of one function: it gets each kernel with its arguments, and gives the result."""

    def __init__(self, function: Callable[[Any, Sequence[Any], Mapping[str, Any]], Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._function = function

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._function(func, args, kwargs or {})
