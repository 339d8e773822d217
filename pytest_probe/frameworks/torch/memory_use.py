"""PyTorch: what a call takes of a device's memory: by its allocator, on the CPU by torch's profiler."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from operator import itemgetter
from typing import Any

import torch
from torch.autograd import profiler

from pytest_probe.frameworks.torch.hardware import SILENT
from pytest_probe.model.run import MemoryUse

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
    """By every allocation and release of the CPU's allocator, as Kineto has them: operators alone tell what each of
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
