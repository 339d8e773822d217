"""PaddlePaddle: devices, their memory and time; and a 16-bit device on the CPU, where Paddle has few kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import paddle

from pytest_probe.frameworks.paddle.arrays import SIZES, Tensor, name_of, to_array, to_tensor
from pytest_probe.model.measurement import Clock, EventClock, HostClock
from pytest_probe.model.run import Device, MemoryUse
from pytest_probe.numerics.arrays import same_bytes
from pytest_probe.numerics.dtypes import numpy_dtype
from pytest_probe.system.machine import processor
from pytest_probe.user_errors import MemoryErrors, causes, message_of

_core: Any = paddle.base.core
_flags: Any = _core.globals()
# How a Paddle that has no such device, or does not say, answers.
_SILENT = (AttributeError, NotImplementedError, OSError, RuntimeError, TypeError, ValueError)
# What changes the numbers of an accelerator, and how sums are split on the CPU.
_DESCRIBED = ("FLAGS_paddle_num_threads", "FLAGS_use_accuracy_compatible_kernel", "FLAGS_cudnn_deterministic")


def described() -> dict[str, str]:
    """Flags that this build has, by name."""
    return {name: str(_flags[name]) for name in _DESCRIBED if name in _flags.keys()}  # noqa: SIM118


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


# What Paddle's allocators and C++ say, in lower case; on the CPU they raise MemoryError themselves.
_EXHAUSTED, _DEVICE_RAN_OUT, _HOST_RAN_OUT = "resourceexhausted", "out of memory", "fail to alloc memory"
_RAN_OUT = (_EXHAUSTED, _DEVICE_RAN_OUT, _HOST_RAN_OUT, "bad_alloc")


def is_device_memory(error: BaseException) -> bool:
    """Paddle's error of that name, whose words are other ones where the host's allocator raises it."""
    return any(
        _DEVICE_RAN_OUT in words or (_EXHAUSTED in words and _HOST_RAN_OUT not in words)
        for words in (message_of(each).lower() for each in causes(error))
    )


# Paddle says it, or code that it ran, in words of its own.
memory_errors = MemoryErrors(
    lambda error: any(words in message_of(each).lower() for each in causes(error) for words in _RAN_OUT)
)


def memory_use(device: str, call: Callable[[], object]) -> MemoryUse | None:
    """See Framework.memory_use."""
    kind, _, number = device.partition(":")
    side = "host" if kind == "cpu" else "device"

    def counted(what: str) -> Any:
        return getattr(_core, f"{side}_memory_stat_{what}")("Allocated", int(number or 0))

    try:
        _waited(device)
        before = counted("current_value")
        counted("reset_peak_value")
    except _SILENT:
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


def clock(device: Device, *, own: bool) -> Clock:
    """own: it is a device of Paddle's own, and no project's."""
    if not own:
        tiny = paddle.zeros([1])
        return HostClock(lambda: device.get(device.put(tiny)))
    if device.name == "cpu":
        return HostClock()
    with suppress(*_SILENT):
        found = EventClock(partial(paddle.device.Event, device=device.name, enable_timing=True))
        found.seconds(found.mark(), found.mark())
        return found
    return HostClock(partial(paddle.device.synchronize, device.name))


# 16 bit where the CPU has no kernels of it: computed in float32, rounded at inputs and outputs.
#
# The 16-bit kernels that Paddle's CPU does have round each step, and are judged as 16 bit.


_SIXTEEN_BIT = (paddle.float16, paddle.bfloat16)


class EmulatedDevice:
    """The CPU, with 16 bit in float32. A call without a tensor of 16 bit is made as it is."""

    name = "cpu"

    def put(self, tensor: Tensor) -> Tensor:
        return tensor

    def get(self, tensor: Tensor) -> Tensor:
        return tensor

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        narrow = next((leaf.dtype for leaf in _leaves((args, kwargs)) if _is_narrow_tensor(leaf)), None)
        if narrow is None:
            return function(*args, **kwargs)
        asked = [leaf for leaf in _leaves((args, kwargs)) if isinstance(leaf, paddle.dtype)]
        wide = _Widened()
        result = function(*wide.widened(list(args)), **wide.widened(dict(kwargs)))
        wide.write_back()
        # A dtype that the call names is that of its result.
        return wide.narrowed(result, asked[0] if asked else narrow)


class _Widened:
    """Tensors of 16 bit with what a call gets instead of them."""

    def __init__(self) -> None:
        self._pairs: list[tuple[Tensor, Tensor]] = []

    def widened(self, tree: Any) -> Any:
        if isinstance(tree, (list, tuple)):
            return type(tree)([self.widened(item) for item in tree])
        if isinstance(tree, dict):
            return {key: self.widened(item) for key, item in tree.items()}
        if isinstance(tree, paddle.dtype):
            return paddle.float32 if tree in _SIXTEEN_BIT else tree
        if not _is_narrow_tensor(tree):
            return tree
        known = next((wide for narrow, wide in self._pairs if narrow is tree), None)
        if known is not None:
            return known
        wide = _cast(tree, paddle.float32)
        self._pairs.append((tree, wide))
        return wide

    def write_back(self) -> None:
        """What the call wrote to in float32 becomes 16 bit where it came from."""
        for narrow, wide in self._pairs:
            # Not every kernel that writes says so.
            if not same_bytes(to_array(wide.detach()), to_array(narrow.detach().cast(paddle.float32))):
                paddle.assign(_cast(wide, narrow.dtype), narrow)

    def narrowed(self, tree: Any, dtype: Any) -> Any:
        if isinstance(tree, (list, tuple)) and not isinstance(tree, SIZES):
            return [self.narrowed(item, dtype) for item in tree]
        if not isinstance(tree, paddle.Tensor):
            return tree
        own = next((narrow for narrow, wide in self._pairs if wide is tree), None)
        if own is not None:
            return own
        return _cast(tree, dtype) if tree.dtype == paddle.float32 else tree


def _cast(tensor: Tensor, dtype: Any) -> Tensor:
    """Values and gradients by NumPy: Paddle's own cast makes some numbers near 2^-77 large ones of float16."""
    return _rounded(tensor, dtype) if tensor.stop_gradient else _Cast.apply(tensor, dtype)


def _rounded(tensor: Tensor, dtype: Any) -> Tensor:
    with np.errstate(all="ignore"):
        return to_tensor(to_array(tensor.detach()).astype(numpy_dtype(name_of(dtype))))


class _Cast(paddle.autograd.PyLayer):  # type: ignore[misc]
    """See `_cast`."""

    @staticmethod
    def forward(context: Any, tensor: Tensor, dtype: Any) -> Tensor:
        context.dtype = tensor.dtype
        return _rounded(tensor, dtype)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return _rounded(gradient, context.dtype)


def _is_narrow_tensor(leaf: Any) -> bool:
    return isinstance(leaf, paddle.Tensor) and leaf.dtype in _SIXTEEN_BIT


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, (list, tuple)):
        for item in tree:
            yield from _leaves(item)
    elif isinstance(tree, dict):
        yield from _leaves(list(tree.values()))
    else:
        yield tree
