"""PaddlePaddle: the accelerator that it finds, and what changes its numbers."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import paddle

from pytest_probe.system.processor import processor

_core: Any = paddle.base.core
_flags: Any = _core.globals()
# What changes the numbers of an accelerator, and how sums are split on the CPU.
DESCRIBED = ("FLAGS_paddle_num_threads", "FLAGS_use_accuracy_compatible_kernel", "FLAGS_cudnn_deterministic")


def described() -> dict[str, str]:
    """Flags that this build has, by name."""
    return {name: str(_flags[name]) for name in DESCRIBED if name in _flags.keys()}  # noqa: SIM118


def accelerator() -> str | None:
    """The accelerator that this build drives, by the name that Paddle takes; None without one."""
    if paddle.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0:
        return "gpu"
    if paddle.is_compiled_with_xpu() and _core.get_xpu_device_count() > 0:
        return "xpu"
    return next(iter(paddle.device.get_all_custom_device_type() or ()), None)


def memory_left(device: str) -> int | None:
    """Bytes that nobody has taken of a device's own memory; None for the host's, and where the device does not say."""
    if not device.startswith("gpu"):
        return None
    try:
        left, _ = paddle.device.cuda.mem_get_info(device)
    except (AttributeError, OSError, RuntimeError, ValueError):
        return None
    return int(left)


def release_memory(device: str) -> None:
    """Empty the cache of a device's allocator: Paddle has a call for a GPU alone."""
    if device.startswith("gpu"):
        with suppress(AttributeError, OSError, RuntimeError, ValueError):
            paddle.device.cuda.empty_cache()


def hardware(device: str) -> dict[str, str]:
    """The hardware behind a device's name ("gpu:0"), and the toolkit that Paddle was built with for it; empty for a
    device of the project's own."""
    kind, _, index = device.partition(":")
    if kind == "cpu":
        return {"hardware": processor()}
    found: dict[str, str] = {}
    if kind == "gpu":
        with suppress(AttributeError, OSError, RuntimeError, ValueError):
            found["hardware"] = str(paddle.device.cuda.get_device_name(int(index or 0)))
            found["toolkit"] = str(paddle.version.cuda())
    return found


def devices(kind: str) -> int:
    """How many devices of this kind there are."""
    if kind == "gpu":
        return int(paddle.device.cuda.device_count())
    if kind == "xpu":
        return int(_core.get_xpu_device_count())
    return sum(name.partition(":")[0] == kind for name in paddle.device.get_available_custom_device() or ())
