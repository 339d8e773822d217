"""PyTorch: whose kernels the operators run. A library may have replaced torch's own."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.library

_C: Any = torch._C
# torch's dispatcher lists a kernel by its key and the place where it was registered: a line of C++, or of Python.
_REGISTERED = ": registered at "
_OWN_FOLDER = str(Path(torch.__file__).parent)
# Keys that no call on a CPU comes by: other devices, and what traces, maps or prepares calls.
_ELSEWHERE = ("Meta", "Functionalize", "Tracer", "FuncTorch", "Batched", "Vmap", "debug", "NestedTensor")


def registered(place: str) -> tuple[str, ...] | None:
    """None where an operator of torch's runs a kernel from elsewhere: nothing shows when that changes."""
    # Libraries come with modules, by load_library, or in Python; looking at all operators takes a sixth of a second.
    seen = len(sys.modules), frozenset(torch.ops.loaded_libraries), frozenset(torch.library._impls)
    return () if not _foreign(place.partition(":")[0], seen) else None


@functools.lru_cache(maxsize=1)
def _foreign(device: str, seen: tuple[Any, ...]) -> bool:
    """Is there such a kernel?"""
    root = _source_root()
    lines = (line for name in _C._dispatch_get_all_op_names() if name.startswith("aten::") for line in _kernels(name))
    return any(_may_run(key, device) and not place.startswith((root, _OWN_FOLDER)) for key, place in lines)


def _kernels(name: str) -> Iterator[tuple[str, str]]:
    """The dispatch key of each kernel of an operator, and where it was registered."""
    for line in _C._dispatch_dump(name).splitlines():
        key, registered, place = line.partition(_REGISTERED)
        if registered and "(inactive)" not in key:
            yield key, place


def _source_root() -> str:
    """Where torch's own sources lay when it was built."""
    (place,) = (place for key, place in _kernels("aten::add.Tensor") if key == "debug")
    return place.partition("build/aten/")[0]


def _may_run(key: str, device: str) -> bool:
    if key.startswith(_ELSEWHERE):
        return False
    others = ("CUDA", "PrivateUse", "XPU", "MPS", "XLA", "HPU", "IPU", "MTIA", "MAIA", "HIP", "VE", "Lazy", "Vulkan")
    return device != "cpu" or not any(name in key for name in others)
