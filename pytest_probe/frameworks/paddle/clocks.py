"""The time of Paddle's devices: events of an accelerator's stream, else the host's around what the device does."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import paddle

from pytest_probe.model.clock import Clock, EventClock, HostClock
from pytest_probe.model.run import Device
from pytest_probe.system.processor import last_level_cache as cache_of_processor

# How a Paddle that has no such device, or does not say, answers.
SILENT = (AttributeError, NotImplementedError, OSError, RuntimeError, TypeError, ValueError)


def clock(device: Device, *, own: bool) -> Clock:
    """own: it is a device of Paddle's own, and no project's."""
    if not own:
        tiny = paddle.zeros([1])
        return HostClock(lambda: device.get(device.put(tiny)))
    if device.name == "cpu":
        return HostClock()
    with suppress(*SILENT):
        found = EventClock(partial(paddle.device.Event, device=device.name, enable_timing=True))
        found.seconds(found.mark(), found.mark())
        return found
    return HostClock(partial(paddle.device.synchronize, device.name))


def last_level_cache(device: str) -> int:
    """Bytes; 0 where the device does not tell."""
    return cache_of_processor() if device == "cpu" else 0
