"""PaddlePaddle: the accelerator that it finds, and what changes its numbers."""

from __future__ import annotations

from typing import Any

import paddle

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


def devices(kind: str) -> int:
    """How many devices of this kind there are."""
    if kind == "gpu":
        return int(paddle.device.cuda.device_count())
    if kind == "xpu":
        return int(_core.get_xpu_device_count())
    return sum(name.partition(":")[0] == kind for name in paddle.device.get_available_custom_device() or ())
