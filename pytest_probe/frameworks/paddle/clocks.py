"""The time of Paddle's devices: events of an accelerator's stream, else the host's around what the device does."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import paddle

from pytest_probe.core.clock import Clock, ClockName, HostClock
from pytest_probe.core.processor import last_level_cache as cache_of_processor
from pytest_probe.core.run import Device

# How a Paddle that has no such device, or does not say, answers.
SILENT = (AttributeError, NotImplementedError, OSError, RuntimeError, TypeError, ValueError)


class EventClock:
    """Events on the current stream of an accelerator."""

    name: ClockName = "events"
    block = 1e-3

    def __init__(self, device: str) -> None:
        self._event: Any = partial(paddle.device.Event, device=device, enable_timing=True)

    def mark(self) -> Any:
        event = self._event()
        event.record()
        return event

    def seconds(self, start: Any, end: Any) -> float:
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3


def clock(device: Device, *, own: bool) -> Clock:
    """own: it is a device of Paddle's own, and no project's."""
    if not own:
        tiny = paddle.zeros([1])
        return HostClock(lambda: device.get(device.put(tiny)))
    if device.name == "cpu":
        return HostClock()
    with suppress(*SILENT):
        found = EventClock(device.name)
        found.seconds(found.mark(), found.mark())
        return found
    return HostClock(partial(paddle.device.synchronize, device.name))


def last_level_cache(device: str) -> int:
    """Bytes; 0 where the device does not tell."""
    return cache_of_processor() if device == "cpu" else 0
