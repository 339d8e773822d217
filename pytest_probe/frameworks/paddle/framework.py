"""PaddlePaddle: which names may be called, what devices there are, stored tensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from pytest_probe.errors import SettingsError
from pytest_probe.frameworks.base import Framework, Functions
from pytest_probe.frameworks.paddle import allowlist, compiled, devices, memory, references, safety, state
from pytest_probe.frameworks.paddle.arrays import Tensor, to_tensor
from pytest_probe.frameworks.paddle.calls import PaddleCalls
from pytest_probe.frameworks.paddle.devices import EmulatedDevice, is_device_memory, memory_errors
from pytest_probe.frameworks.paddle.references import border, widening
from pytest_probe.frameworks.paddle.script import LITERAL, SCRIPT
from pytest_probe.frameworks.python.framework import PythonDevice, PythonFramework
from pytest_probe.model.measurement import Clock
from pytest_probe.model.run import Arguments, Device, MemoryUse, Way
from pytest_probe.system.machine import last_level_cache
from pytest_probe.user_errors import message_of

# What Paddle's errors say, in lower case, where a device has no kernel: it gives them no type of their own.
_NO_KERNEL = re.compile(
    r"\(notfound\) the kernel with key|\(unimplemented\)|\(unavailable\)|kernel .* is not registered"
    r"|the data type of .* must be|dtype must be float32 or float64|such as 'float32' and 'float64'|not inexact"
    r"|type of data we are trying to retrieve .* does not match"
    r"|doesn't support .*dtype|not support.* (bfloat16|float16|bf16|fp16)"
)


class PaddleDevice(PythonDevice):
    """A device of Paddle's own: cpu, gpu, xpu, npu, ..."""

    def put(self, tensor: Tensor) -> Tensor:
        return tensor if self.name == "cpu" else tensor.to(self.name)

    def get(self, tensor: Tensor) -> Tensor:
        return tensor if self.name == "cpu" else tensor.cpu()


class PaddleFramework(PaddleCalls, PythonFramework):
    """Paddle, as the execution needs it. It shows no steps inside a call, so that nothing is known of them here."""

    name = "paddle"
    package = "paddle"
    kinds = ("cpu", "gpu", "npu", "xpu")
    refusals = (Exception,)  # ValueError, OSError, or what a plugin raises
    widening = staticmethod(widening)
    hardware = staticmethod(devices.hardware)
    is_device_memory = staticmethod(is_device_memory)
    fixed_state = staticmethod(state.Fixed)
    users_state = staticmethod(state.OfUser)
    random_state = staticmethod(state.random_state)
    candidates = staticmethod(allowlist.candidates)
    apis = staticmethod(allowlist.apis)
    count = staticmethod(devices.devices)
    check_arguments = staticmethod(safety.check_arguments)
    border = staticmethod(border)
    zones = staticmethod(memory.zones)
    refilled = staticmethod(memory.refilled)
    fill = staticmethod(memory.fill)
    compilers = staticmethod(compiled.names)
    compiler = staticmethod(compiled.PaddleCompiler)
    compiler_environment = staticmethod(compiled.environment)
    compiler_error = staticmethod(compiled.compiler_error)
    noting_choices = staticmethod(references.noting)
    script = staticmethod(SCRIPT.text)
    literal_script = staticmethod(LITERAL.text)

    def describe(self) -> dict[str, str]:
        return {
            "framework": "paddle",
            "version": str(paddle.__version__),
            **devices.described(),
            **({"state": found} if (found := state.differing()) else {}),
        }

    def memory_left(self, device: Device) -> int | None:
        return devices.memory_left(device.name)

    def unwritten(self, device: Device, like: Sequence[np.ndarray], number: float) -> AbstractContextManager[bool]:
        return memory.unwritten(device.name, like, number)

    def release_memory(self, device: Device) -> None:
        devices.release_memory(device.name)

    def clock(self, device: Device) -> Clock:
        return devices.clock(device, own=isinstance(device, PaddleDevice))

    @memory_errors
    def memory_use(self, device: Device, call: Callable[[], object]) -> MemoryUse | None:
        return devices.memory_use(_place_of(device), call)

    def last_level_cache(self, device: Device) -> int:
        return last_level_cache() if _place_of(device) == "cpu" else 0

    def yardsticks(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        return paddle.assign, paddle.matmul

    def allowed(self, device: str) -> tuple[str, ...]:
        # The exponential of Eigen, of which the CPU's kernels are made, gives zero for subnormal numbers.
        return ("ftz",) if device == "cpu" else ()

    def computes_narrow(self, dtype: str) -> bool:
        # The existing ones take each number for one of a class whose operators round.
        return dtype in ("float16", "bfloat16")

    def registered_kernels(self, place: str) -> tuple[str, ...] | None:
        return (str(paddle.version.commit),)

    def share_threads(self, workers: int) -> None:
        """Paddle's CPU kernels run in one thread each."""

    def default_device(self) -> str:
        return devices.accelerator() or "cpu"

    def opened(self, name: str) -> PaddleDevice:
        before = paddle.device.get_device()
        paddle.device.set_device(name)
        paddle.device.set_device(before)
        return PaddleDevice(name)

    def select(self, device: Device) -> None:
        """Each call sets Paddle's device itself."""

    def is_lost(self, device: Device) -> bool:
        if device.name == "cpu":
            return False
        try:
            paddle.device.synchronize(device.name)
        except (OSError, RuntimeError):
            return True
        except ValueError:  # a kind of device that cannot be asked
            return False
        return False

    def emulating(self, name: str) -> Device:
        return EmulatedDevice() if self.device(name).name == "cpu" else super().emulating(name)

    def bytes_inside(self, name: str, function: Callable[..., Any], arguments: Arguments, way: Way, limit: int) -> int:
        return memory.bytes_inside(name, arguments.args, arguments.kwargs, limit)

    def as_single(self, function: Callable[..., Any], largest: float, name: str) -> Callable[..., Any]:
        return function if name not in references.DEFAULTS else partial(references.as_single, function, largest, name)

    def rounded(self, tensor: Tensor, dtype: str) -> Tensor:
        # Values are rounded, gradients pass as if they were not.
        return tensor + (tensor.cast(dtype).cast(tensor.dtype) - tensor).detach()

    def functions(self, function: Callable[..., Any], reference: Callable[..., Any]) -> Functions:
        for given in (function, reference):
            if isinstance(given, paddle.nn.Layer):
                wanted = "a Layer keeps its own float32 parameters: give functions of tensors"
                raise SettingsError("probe.check", type(given).__name__, wanted)
        return Functions(function, reference)

    def put_into(self, target: Tensor, tensor: Tensor) -> Tensor:
        return paddle.assign(tensor, target)

    def has_no_kernel(self, error: BaseException) -> bool:
        text = message_of(error)
        # Some functions assert their dtypes without a word.
        without_words = isinstance(error, AssertionError) and not text
        return isinstance(error, NotImplementedError) or without_words or _NO_KERNEL.search(text.lower()) is not None

    @memory_errors
    def save(self, path: Path, arrays: Mapping[str, np.ndarray]) -> None:
        paddle.save({name: to_tensor(array) for name, array in arrays.items()}, str(path))


def _place_of(device: Device) -> str:
    """Where Paddle has the tensors of a device: on the CPU those of a project's own."""
    return device.name if isinstance(device, PaddleDevice) else "cpu"


def made() -> Framework:
    """See frameworks.load."""
    # Paddle's own handlers write a trace of C++ where a process gets a signal to end, and replace pytest's.
    paddle.disable_signal_handler()
    return PaddleFramework()
