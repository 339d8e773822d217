"""PyTorch: which kernels the operators run, which may be those of another library; and where kernels of a release are
known to be wrong on the CPU. And modes that see every kernel, without what torch imports to keep its compiler out."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.library
from msgspec import Struct
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_probe.model.comparison import Comparison, KnownFinding
from pytest_probe.numerics.dtypes import AnyArray, widen

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


_C: Any = torch._C
# torch's dispatcher lists a kernel by its key and the place where it was registered: a line of C++, or of Python.
_REGISTERED = ": registered at "
_OWN_FOLDER = str(Path(torch.__file__).parent)
# Keys that no call on a CPU comes by: what traces, maps or prepares calls, and other devices.
_ELSEWHERE = ("Meta", "Functionalize", "Tracer", "FuncTorch", "Batched", "Vmap", "debug", "NestedTensor")
_OTHER_DEVICES = "CUDA PrivateUse XPU MPS XLA HPU IPU MTIA MAIA HIP VE Lazy Vulkan".split()


def registered(place: str) -> tuple[str, ...] | None:
    """None where an operator of torch's runs a kernel from elsewhere: nothing shows when that changes."""
    # Libraries come with modules, by load_library, or in Python; looking at all operators takes a sixth of a second.
    seen = len(sys.modules), frozenset(torch.ops.loaded_libraries), frozenset(torch.library._impls)
    return () if not _foreign(place.partition(":")[0], seen) else None


# A run asks for the device and for the CPU.
@functools.lru_cache(maxsize=4)
def _foreign(device: str, seen: tuple[Any, ...]) -> bool:
    """Is there such a kernel?"""
    # Where torch's own sources lay when it was built.
    (place,) = (place for key, place in _kernels("aten::add.Tensor") if key == "debug")
    root = place.partition("build/aten/")[0]
    lines = (line for name in _C._dispatch_get_all_op_names() if name.startswith("aten::") for line in _kernels(name))
    elsewhere = () if device != "cpu" else _OTHER_DEVICES
    return any(
        not key.startswith(_ELSEWHERE)
        and not any(name in key for name in elsewhere)
        and not place.startswith((root, _OWN_FOLDER))
        for key, place in lines
    )


def _kernels(name: str) -> Iterator[tuple[str, str]]:
    """The dispatch key of each kernel of an operator, and where it was registered."""
    for line in _C._dispatch_dump(name).splitlines():
        key, registered, place = line.partition(_REGISTERED)
        if registered and "(inactive)" not in key:
            yield key, place


# Where kernels of a release are known to be wrong on the CPU: benchmarks/fuzz_findings.py proves each of them,
# docs/findings.md describes it.


# From here on exp overflows in float32, and in the dtypes that compute in it.
_EXP_OVERFLOWS = 88.72
# Below it the vectorised erf of bfloat16 is off.
_SMALL_ERF = 2.0**-12


class Finding(Struct, frozen=True):
    """Wrong elements of an API's output: releases are those in which it was proved, as "2.13"; dtypes those of the
    output; elements says which ones, given the input in float64 and the output."""

    api: str
    releases: tuple[str, ...]
    dtypes: tuple[str, ...]
    description: str
    elements: Callable[[AnyArray, AnyArray], AnyArray]


def _early(x: AnyArray, found: AnyArray) -> AnyArray:
    return np.asarray((np.abs(x) >= _EXP_OVERFLOWS) & np.isinf(found))


FINDINGS = (
    Finding(
        "gelu",
        ("2.13",),
        ("float32", "bfloat16"),
        "gelu of an infinity is NaN",
        lambda x, found: np.asarray(np.isinf(x) & np.isnan(found)),
    ),
    Finding(
        "erf",
        ("2.13",),
        ("bfloat16",),
        "erf of small bfloat16 numbers is off by up to twice the result",
        lambda x, found: np.asarray((np.abs(x) < _SMALL_ERF) & (np.abs(found) < 4 * np.abs(x))),
    ),
    Finding("sinh", ("2.13",), ("float32",), "sinh overflows where exp does", _early),
    Finding("cosh", ("2.13",), ("float32",), "cosh overflows where exp does", _early),
)


def known(comparison: Comparison) -> Iterator[KnownFinding]:
    """The findings of this release that a forward output of the CPU shows, with the elements that each concerns."""
    release = ".".join(torch.__version__.split(".")[:2])
    if comparison.direction != "forward" or comparison.name != "output.0":
        return
    for finding in FINDINGS:
        if finding.api != comparison.call.name or release not in finding.releases:
            continue
        x = comparison.call.argument("input")
        if comparison.actual.dtype.name not in finding.dtypes or np.shape(x) != comparison.actual.shape:
            continue
        elements = finding.elements(widen(np.asarray(x)), widen(comparison.actual))
        if elements.any():
            yield KnownFinding(f"torch {release} on a CPU: {finding.description}", elements)
