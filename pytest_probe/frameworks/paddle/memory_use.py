"""PaddlePaddle: what a call takes of a device's memory, by the counters of its allocators, on the CPU as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle

from pytest_probe.frameworks.paddle.clocks import SILENT
from pytest_probe.model.run import MemoryUse

_core: Any = paddle.base.core
ALLOCATED = "Allocated"


def memory_use(device: str, call: Callable[[], object]) -> MemoryUse | None:
    """See Framework.memory_use."""
    kind, _, number = device.partition(":")
    side = "host" if kind == "cpu" else "device"

    def counted(what: str) -> Any:
        return getattr(_core, f"{side}_memory_stat_{what}")(ALLOCATED, int(number or 0))

    try:
        _waited(device)
        before = counted("current_value")
        counted("reset_peak_value")
    except SILENT:
        return None
    result = call()
    _waited(device)
    peak, after = counted("peak_value"), counted("current_value")
    del result
    # A build that counts nothing says 0, and a device that holds a call's tensors cannot have held nothing.
    return None if side == "device" and not peak else MemoryUse(peak - before, after - before, "allocator")


def _waited(device: str) -> None:
    if device != "cpu":
        paddle.device.synchronize(device)
