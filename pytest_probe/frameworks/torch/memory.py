"""PyTorch: errors that say that memory ran out, for which torch has no type of its own on the CPU; what a device has
left."""

from __future__ import annotations

from contextlib import suppress

import torch

from pytest_probe.frameworks.torch.hardware import SILENT
from pytest_probe.user_errors import MemoryErrors, causes, said

# What torch's allocators, oneDNN and C++ say, in lower case.
DEVICE_RAN_OUT = "out of memory"
RAN_OUT = ("can't allocate memory", "cannot allocate memory", "not enough memory", DEVICE_RAN_OUT, "bad_alloc")


def memory_left(place: torch.device) -> int | None:
    """Bytes that nobody has taken of a device's own memory; None for the host's, and where the device does not say."""
    if place.type == "cpu":
        return None
    try:
        left, _ = torch.get_device_module(place.type).mem_get_info(place)
    except SILENT:
        return None
    return int(left)


def release_memory(place: torch.device) -> None:
    """Empty the cache of a device's allocator, where it has one."""
    if place.type != "cpu":
        with suppress(*SILENT):
            torch.get_device_module(place.type).empty_cache()


def is_device_memory(error: BaseException) -> bool:
    """Torch's type for it, or the words of a backend that does not use it ("NPU out of memory"); no words of the CPU's
    allocator."""
    return any(
        isinstance(each, torch.OutOfMemoryError) or DEVICE_RAN_OUT in said(each).lower() for each in causes(error)
    )


def _ran_out(error: BaseException) -> bool:
    """Is it such an error, or one that a project's own code made of it?"""
    return any(
        isinstance(each, torch.OutOfMemoryError | MemoryError) or any(words in said(each).lower() for words in RAN_OUT)
        for each in causes(error)
    )


memory_errors = MemoryErrors(_ran_out)
