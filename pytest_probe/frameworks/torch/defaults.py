"""PyTorch: arguments whose default is a number of the tensors' dtype, which float64 would make another call of.

Compiled functions of torch's run without the mode: it sees calls from Python alone, so it would see nothing inside one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from pytest_probe.frameworks.base import looked_up

# u_c of float32: what kernels of float32 and of all narrower dtypes compute in.
EPS = torch.finfo(torch.float32).eps
CallArguments = tuple[tuple[Any, ...], dict[str, Any]]


def epsilon(args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallArguments:
    """rms_norm(x, shape, weight, eps): that of the arithmetic, float32 for everything narrower."""
    if kwargs.get("eps") is not None or (len(args) > 3 and args[3] is not None):
        return args, kwargs
    return args[:3], {**kwargs, "eps": EPS}


def relative_tolerance(args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallArguments:
    """pinv and matrix_rank(A, *, atol, rtol), or with one tolerance in their place."""
    if len(args) > 1 or any(kwargs.get(name) is not None for name in ("atol", "rtol", "tol", "rcond")):
        return args, kwargs
    return args, {**kwargs, "rtol": _cut_off(args, kwargs)}


def cut_off(args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallArguments:
    """lstsq(A, B, rcond)."""
    if kwargs.get("rcond") is not None or (len(args) > 2 and args[2] is not None):
        return args, kwargs
    return args[:2], {**kwargs, "rcond": _cut_off(args, kwargs)}


def _cut_off(args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """Below which share of the largest singular value one counts as zero."""
    matrix = args[0] if args else kwargs["input"]
    return float(EPS * max(matrix.shape[-2:]))


def clamp_limits(largest: float, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallArguments:
    """nan_to_num(x, nan, posinf, neginf)."""
    given = {**dict(zip(("nan", "posinf", "neginf"), args[1:], strict=False)), **kwargs}
    ends = {"posinf": largest, "neginf": -largest}
    return args[:1], {**given, **{name: end for name, end in ends.items() if given.get(name) is None}}


DEFAULTS: Mapping[Any, Callable[[tuple[Any, ...], dict[str, Any]], CallArguments]] = {
    torch.nn.functional.rms_norm: epsilon,
    torch.rms_norm: epsilon,
    torch.linalg.matrix_rank: relative_tolerance,
    torch.linalg.pinv: relative_tolerance,
    torch.linalg.lstsq: cut_off,
}

# These take the largest number of the dtype, which float64 has another of.
LIMITED = frozenset((torch.nan_to_num, torch.nan_to_num_, torch.Tensor.nan_to_num, torch.Tensor.nan_to_num_))


COMPILED = (BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType)


class DefaultsMode(TorchFunctionMode):
    """Writes these defaults down, as they are for float32 and for tensors whose largest number this is."""

    def __init__(self, largest: float) -> None:
        super().__init__()
        self._largest = largest

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        change = partial(clamp_limits, self._largest) if func in LIMITED else DEFAULTS.get(func, _unchanged)
        args, kwargs = change(args, kwargs or {})
        return func(*args, **kwargs)


def _unchanged(args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallArguments:
    return args, kwargs


def as_single(function: Callable[..., Any], largest: float, /, *args: Any, **kwargs: Any) -> Any:
    """The function's result under these defaults."""
    called = looked_up(function)
    if runs_plain(called):
        return called(*args, **kwargs)
    with DefaultsMode(largest):
        return called(*args, **kwargs)


def runs_plain(function: Callable[..., Any]) -> bool:
    """Is it one of torch's compiled functions without such a default? A mode would see nothing that it calls."""
    if not isinstance(function, COMPILED) or function in LIMITED or function in DEFAULTS:
        return False
    if getattr(torch._C._VariableFunctions, function.__name__, None) is function:
        return True
    # A class of its methods, or the module that holds it.
    owner = getattr(function, "__objclass__", None) or getattr(function, "__self__", None)
    return str(getattr(owner, "__module__", None) or getattr(owner, "__name__", "")).startswith("torch.")
