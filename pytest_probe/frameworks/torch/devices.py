"""PyTorch: the hardware, the memory and the clock of a device, as far as torch knows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import accumulate
from operator import itemgetter
from typing import Any

import torch
from torch.autograd import profiler

from pytest_probe.model.measurement import Clock, EventClock, HostClock
from pytest_probe.model.run import Device, MemoryUse
from pytest_probe.system.machine import last_level_cache as cache_of_processor
from pytest_probe.system.machine import processor
from pytest_probe.user_errors import MemoryErrors, causes, said

# How a torch that has no such device, or does not say, answers.
SILENT = (AttributeError, AssertionError, ImportError, NotImplementedError, RuntimeError, TypeError, ValueError)


def hardware(name: str) -> dict[str, str]:
    """The hardware behind a device's name ("cuda:0"), the version of its driver, and of the libraries that torch was
    built with for it; empty for a device of the project's own."""
    kind, _, index = name.partition(":")
    if kind == "cpu":
        return {"hardware": f"{processor()}, {torch.backends.cpu.get_cpu_capability()}"}
    found: dict[str, str] = {}
    with suppress(*SILENT):
        module: Any = torch.get_device_module(kind)
        found["hardware"] = str(module.get_device_name(int(index or 0)))
    if kind == "cuda":
        with suppress(*SILENT):
            # Private, and there is no public one.
            found["driver"] = str(getattr(torch._C, "_cuda_getDriverVersion")())  # noqa: B009
        with suppress(*SILENT):
            found["toolkit"] = str(torch.version.hip or torch.version.cuda)
            cudnn: Any = torch.backends.cudnn
            found["cudnn"] = str(cudnn.version())
    return found


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


# What Kineto calls an allocation, or a release.
MEMORY = "[memory]"


def memory_use(place: torch.device, call: Callable[[], object]) -> MemoryUse | None:
    """See Framework.memory_use."""
    if place.type == "cpu":
        return _profiled(call)
    try:
        module: Any = torch.get_device_module(place.type)
        module.synchronize(place)
        before = module.memory_allocated(place)
        module.reset_peak_memory_stats(place)
    except SILENT:
        return None
    result = call()
    module.synchronize(place)
    peak, after = module.max_memory_allocated(place), module.memory_allocated(place)
    del result
    # A device that holds a call's tensors cannot have held nothing.
    return MemoryUse(peak - before, after - before, "allocator") if peak else None


def _profiled(call: Callable[[], object]) -> MemoryUse | None:
    """By every allocation and release of the CPU's allocator, as Kineto has them: events of operators say what each of
    them leaves, and not what it held."""
    # One that a program has begun counts for that.
    if profiler._is_profiler_enabled:
        return None
    with profiler.profile(use_kineto=True, profile_memory=True) as found:
        result = call()
    del result
    recorded: Any = found.kineto_results
    events = [(event.start_ns(), event.nbytes()) for event in recorded.events() if event.name() == MEMORY]
    held = list(accumulate((size for _, size in sorted(events, key=itemgetter(0))), initial=0))
    return MemoryUse(max(held), held[-1], "profiler")


def clock(device: Device, *, own: bool) -> Clock:
    """own: it is a device of torch's own, and no project's."""
    place = torch.device(device.name) if own else None
    if place is not None and place.type == "cpu":
        return HostClock()
    if place is not None:
        with suppress(*SILENT):
            found = EventClock(partial(torch.get_device_module(place.type).Event, enable_timing=True))
            found.seconds(found.mark(), found.mark())
            return found
        with suppress(*SILENT):
            wait = partial(torch.get_device_module(place.type).synchronize, place)
            wait()
            return HostClock(wait)
    tiny = torch.zeros(1)
    return HostClock(lambda: device.get(device.put(tiny)))


def last_level_cache(place: torch.device) -> int:
    """Bytes; 0 where the device does not say."""
    if place.type == "cpu":
        return cache_of_processor()
    with suppress(*SILENT):
        properties: Any = torch.get_device_module(place.type).get_device_properties(place)
        return int(properties.L2_cache_size)
    return 0
