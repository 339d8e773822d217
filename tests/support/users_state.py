"""What a project may set in its process before a case runs, each put back afterwards."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

PLAIN = "plain"


class Looking(TorchFunctionMode):
    """Sees every function of torch's, as a logger or a counter does."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


class LookingBelow(TorchDispatchMode):
    """Sees every kernel, as a counter of FLOP does."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


class Narrowing(TorchDispatchMode):
    """Rounds float64 to float32: a reference would be no better than a device."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.dtype is torch.float64:
            return result.to(torch.float32).to(torch.float64)
        return result


class NarrowingAbove(TorchFunctionMode):
    """As Narrowing, in front of torch's functions."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is not torch.Tensor.to:
            wide = lambda value: isinstance(value, torch.Tensor) and value.dtype is torch.float64  # noqa: E731
            args = tuple(value.to(torch.float32) if wide(value) else value for value in args)
        return function(*args, **(kwargs or {}))


@contextmanager
def _set(write: Callable[[Any], object], value: Any, before: Any) -> Iterator[None]:
    write(value)
    try:
        yield
    finally:
        write(before)


@contextmanager
def _deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def _traced() -> Iterator[None]:
    """Functions are wrapped by ones that call them, as tracers, quantisers and vendors do."""
    with ExitStack() as stack:
        for owner, name in (
            *((torch.nn.functional, name) for name in ("linear", "gelu", "softmax", "layer_norm", "dropout")),
            *((torch, name) for name in ("matmul", "sum", "zeros")),
            *((torch.Tensor, name) for name in ("softmax", "exp", "add_", "to", "sum", "__add__")),
        ):
            function = getattr(owner, name)
            through = _through(function)
            stack.enter_context(_set(partial(_put, owner, name), through, vars(owner).get(name)))
        yield


def _through(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return called


def _put(owner: Any, name: str, function: Any) -> None:
    delattr(owner, name) if function is None else setattr(owner, name, function)


@contextmanager
def _warnings_raise() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def _precision(owner: Any, value: str) -> Callable[[], AbstractContextManager[object]]:
    return lambda: _set(lambda precision: setattr(owner, "fp32_precision", precision), value, "none")


def _both_precisions() -> AbstractContextManager[object]:
    """By the older way and by the newer one, after which torch refuses to read some of its own flags."""
    torch.set_float32_matmul_precision("medium")
    return _set(_set_both, "tf32", "none")


def _set_both(value: str) -> None:
    torch.backends.fp32_precision = value  # type: ignore[attr-defined]
    if value == "none":
        torch.set_float32_matmul_precision("highest")


def _newer_precisions() -> Mapping[str, Callable[[], AbstractContextManager[object]]]:
    """What torch before 2.9 has no flags for."""
    mkldnn: Any = torch.backends.mkldnn
    if not hasattr(torch.backends, "fp32_precision"):
        return {}
    return {
        "fp32_precision": _precision(torch.backends, "tf32"),
        "matmul bf16": _precision(mkldnn.matmul, "bf16"),
        "matmul tf32": _precision(mkldnn.matmul, "tf32"),
        "conv bf16": _precision(mkldnn.conv, "bf16"),
        "medium and tf32": _both_precisions,
    }


def _seen_hooks() -> Mapping[str, Callable[[], AbstractContextManager[object]]]:
    """The first releases have nothing that reads these."""
    if not hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks"):
        return {}
    return {"saving hooks": lambda: torch.autograd.graph.saved_tensors_hooks(lambda one: one, lambda one: one)}


STATES: Mapping[str, Callable[[], AbstractContextManager[object]]] = {
    PLAIN: nullcontext,
    "default device meta": lambda: _set(torch.set_default_device, "meta", None),
    "default device cuda": lambda: _set(torch.set_default_device, "cuda", None),
    "default dtype float64": lambda: _set(torch.set_default_dtype, torch.float64, torch.float32),
    "default dtype bfloat16": lambda: _set(torch.set_default_dtype, torch.bfloat16, torch.float32),
    "autocast": lambda: torch.autocast("cpu"),
    "inference mode": torch.inference_mode,
    "no grad": torch.no_grad,
    "deterministic": _deterministic,
    "anomaly mode": torch.autograd.detect_anomaly,
    "medium": lambda: _set(torch.set_float32_matmul_precision, "medium", "highest"),
    **_newer_precisions(),
    "threads": lambda: _set(torch.set_num_threads, 3, torch.get_num_threads()),
    "flush denormal": lambda: _set(torch.set_flush_denormal, True, False),
    "function mode": Looking,
    "dispatch mode": LookingBelow,
    **_seen_hooks(),
    "traced": _traced,
    "warn always": lambda: _set(torch.set_warn_always, True, False),
    "warnings raise": _warnings_raise,
    "numpy raises": lambda: np.errstate(all="raise"),
    "seed": lambda: _set(torch.manual_seed, 5, 0),
    "narrowing": Narrowing,
    "narrowing above": NarrowingAbove,
}
