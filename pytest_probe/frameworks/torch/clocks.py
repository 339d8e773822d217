"""The time of torch's devices: events of an accelerator's stream, else the host's around what the device does."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import torch

from pytest_probe.frameworks.torch.hardware import SILENT
from pytest_probe.model.clock import Clock, EventClock, HostClock
from pytest_probe.model.run import Device
from pytest_probe.system.processor import last_level_cache as cache_of_processor


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
    """Bytes; 0 where the device does not tell."""
    if place.type == "cpu":
        return cache_of_processor()
    with suppress(*SILENT):
        properties: Any = torch.get_device_module(place.type).get_device_properties(place)
        return int(properties.L2_cache_size)
    return 0
