"""PaddlePaddle: which names may be called, what devices there are, stored tensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import paddle

from pytest_probe.errors import SettingsError
from pytest_probe.frameworks.base import API, Bound, Framework, Functions, LiteralCall, Repeated
from pytest_probe.frameworks.paddle import (
    allowlist,
    borders,
    calls,
    choices,
    clocks,
    defaults,
    flags,
    memory_use,
    repeated,
    safety,
    sizes,
    state,
    tensor_files,
)
from pytest_probe.frameworks.paddle.arrays import Tensor, to_tensor
from pytest_probe.frameworks.paddle.emulation import EmulatedDevice
from pytest_probe.frameworks.paddle.literals import LITERAL
from pytest_probe.frameworks.paddle.memory import is_device_memory, memory_errors
from pytest_probe.frameworks.paddle.script import SCRIPT
from pytest_probe.frameworks.paddle.widening import widening
from pytest_probe.frameworks.widened import Widened
from pytest_probe.model import running_side
from pytest_probe.model.arguments import Arguments, BoundCall
from pytest_probe.model.clock import Clock
from pytest_probe.model.comparison import Choice, Comparison, KnownFinding
from pytest_probe.model.dump import Argument
from pytest_probe.model.run import Device, Kernel, MeasuredCall, MemoryUse, Returned, Run, State, Wanted, Way
from pytest_probe.system.decoding import suggestion
from pytest_probe.user_errors import first_line, said

# What Paddle's errors say, in lower case, where a device has no kernel: it gives them no type of their own.
NO_KERNEL = re.compile(
    r"\(notfound\) the kernel with key|\(unimplemented\)|\(unavailable\)|kernel .* is not registered"
    r"|the data type of .* must be|dtype must be float32 or float64|such as 'float32' and 'float64'|not inexact"
    r"|type of data we are trying to retrieve .* does not match"
    r"|doesn't support .*dtype|not support.* (bfloat16|float16|bf16|fp16)"
)


class PaddleDevice:
    """A device of Paddle's own: cpu, gpu, xpu, npu, ..."""

    def __init__(self, name: str) -> None:
        self.name = name

    def put(self, tensor: Tensor) -> Tensor:
        return tensor if self.name == "cpu" else tensor.to(self.name)

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return function(*args, **kwargs)

    def get(self, tensor: Tensor) -> Tensor:
        return tensor if self.name == "cpu" else tensor.cpu()


# Kinds of devices that people name, for a name that is none.
KINDS = ("cpu", "gpu", "npu", "xpu")


class PaddleFramework:
    """Paddle, as the execution needs it. It shows no steps inside a call, so that nothing is known of them here."""

    name = "paddle"

    def describe(self) -> dict[str, str]:
        return {
            "framework": "paddle",
            "version": str(paddle.__version__),
            **flags.described(),
            **({"state": set_by_user} if (set_by_user := state.differing()) else {}),
        }

    def hardware(self, device: str) -> dict[str, str]:
        return flags.hardware(device)

    def memory_left(self, device: Device) -> int | None:
        return flags.memory_left(device.name)

    def release_memory(self, device: Device) -> None:
        flags.release_memory(device.name)

    def clock(self, device: Device) -> Clock:
        return clocks.clock(device, own=isinstance(device, PaddleDevice))

    @memory_errors
    def repeated(self, call: MeasuredCall) -> AbstractContextManager[Repeated]:
        return repeated.repeated(call)

    @memory_errors
    def memory_use(self, device: Device, call: Callable[[], object]) -> MemoryUse | None:
        return memory_use.memory_use(_place_of(device), call)

    def last_level_cache(self, device: Device) -> int:
        return clocks.last_level_cache(_place_of(device))

    def yardsticks(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        return paddle.assign, paddle.matmul

    def is_device_memory(self, error: BaseException) -> bool:
        return is_device_memory(error)

    def fixed_state(self) -> AbstractContextManager[None]:
        return state.Fixed()

    def users_state(self, wanted: State) -> AbstractContextManager[None]:
        return state.OfUser(wanted)

    def allowed(self, device: str) -> tuple[str, ...]:
        # The exponential of Eigen, of which the CPU's kernels are made, gives zero for what is no normal number.
        return ("ftz",) if device == "cpu" else ()

    def plain_convolutions(self, dtype: str) -> bool:
        return False

    def computes_narrow(self, dtype: str) -> bool:
        # Those that there are take each number for one of a class whose operators round.
        return dtype in ("float16", "bfloat16")

    def random_state(self) -> bytes:
        return state.random_state()

    def registered_kernels(self, place: str) -> tuple[str, ...] | None:
        return (str(paddle.version.commit),)

    def share_threads(self, workers: int) -> None:
        """Paddle's CPU kernels run in one thread each."""

    def default_device(self) -> str:
        return flags.accelerator() or "cpu"

    def device(self, name: str, option: str = "--probe-device") -> PaddleDevice:
        try:
            before = paddle.device.get_device()
            paddle.device.set_device(name)
            paddle.device.set_device(before)
        except Exception as error:  # ValueError, OSError, or what a plugin raises
            known = ", ".join(sorted({"cpu", self.default_device()}))
            wanted = f"Paddle says: {first_line(error)}; found here: {known}{suggestion(KINDS, name.partition(':')[0])}"
            raise SettingsError(option, name, wanted) from error
        return PaddleDevice(name)

    def all_devices(self, name: str) -> tuple[str, ...]:
        if name == "cpu" or ":" in name:
            return (name,)
        return tuple(f"{name}:{number}" for number in range(count)) if (count := flags.devices(name)) > 1 else (name,)

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
        if self.device(name).name != "cpu":
            raise SettingsError("--probe-emulate", name, "Paddle has 16-bit kernels there: leave the option out")
        return EmulatedDevice()

    def candidates(self, namespace: str, api: str, namespaces: Mapping[str, str]) -> tuple[API, ...]:
        return allowlist.candidates(namespace, api, namespaces)

    def completions(self, api: API, args: Sequence[Argument], dtype: str | None) -> Iterable[tuple[str, Any]]:
        """No tool of Paddle's leaves arguments out."""
        return ()

    def solved(self, api: API, args: Sequence[Any], output: np.ndarray) -> Iterable[Mapping[str, Any]]:
        return ()

    def apis(self) -> Iterable[str]:
        return allowlist.apis()

    @running_side.reference
    @memory_errors
    def run(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        way: Way,
        wanted: Wanted | None = None,
    ) -> Run:
        return calls.run(function, args, kwargs, way, wanted)

    def check_arguments(self, call: BoundCall) -> None:
        safety.check_arguments(call)

    def bytes_inside(
        self,
        name: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        way: Way,
        limit: int,
    ) -> int:
        return sizes.bytes_inside(name, args, kwargs, limit)

    def as_single(self, function: Callable[..., Any], largest: float, name: str) -> Callable[..., Any]:
        return function if name not in defaults.DEFAULTS else partial(defaults.as_single, function, largest, name)

    def rounded(self, tensor: Tensor, dtype: str) -> Tensor:
        # Values are rounded, gradients pass as if they were not.
        return tensor + (tensor.cast(dtype).cast(tensor.dtype) - tensor).detach()

    def border(self, tensor: Tensor) -> Tensor:
        return borders.border(tensor)

    def noting_choices(self, function: Callable[..., Any], noted: list[Choice]) -> Callable[..., Any]:
        return choices.noting(function, noted)

    def known_findings(self, comparison: Comparison) -> Iterable[KnownFinding]:
        return ()  # none is proved

    def widened(self, reference: Callable[..., Any]) -> Widened:
        return Widened(reference, widening)

    def casts(self, path: str) -> bool:
        return False

    @memory_errors
    def take(self, value: Any, device: Device) -> Any:
        return calls.taken(value, device)

    def functions(self, function: Callable[..., Any], reference: Callable[..., Any]) -> Functions:
        for given in (function, reference):
            if isinstance(given, paddle.nn.Layer):
                wanted = "a Layer keeps its own float32 parameters: give functions of tensors"
                raise SettingsError("probe.check", type(given).__name__, wanted)
        return Functions(function, reference)

    @memory_errors
    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any], way: Way, wanted: Wanted | None) -> Bound:
        return calls.bind_function(args, kwargs, way, wanted)

    @memory_errors
    def left(self, bound: Bound, result: Any) -> Run:
        assert isinstance(bound, calls.PaddleBound)
        return calls.left(bound, result)

    def returned(self, run: Run) -> Returned:
        return calls.returned(run)

    @running_side.reference
    @memory_errors
    def would_return(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        way: Way,
        *,
        computed: bool,
    ) -> Returned:
        if not computed:
            raise NotImplementedError("Paddle has no tensors of a shape and a dtype alone")
        return calls.would_return(function, args, kwargs, way)

    @running_side.reference
    @memory_errors
    def gradients(self, run: Run, seeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return calls.gradients(run, seeds)

    def kernels(self, run: Callable[[], object]) -> tuple[Kernel, ...]:
        return ()

    def has_no_kernel(self, error: BaseException) -> bool:
        text = said(error)
        # Some functions assert their dtypes without a word.
        without_words = isinstance(error, AssertionError) and not text
        return isinstance(error, NotImplementedError) or without_words or NO_KERNEL.search(text.lower()) is not None

    def load(self, file: Path | BinaryIO) -> np.ndarray:
        return tensor_files.load(file)

    def literal_script(self, found: LiteralCall) -> str:
        return LITERAL.text(found)

    @memory_errors
    def save(self, path: Path, arrays: Mapping[str, np.ndarray]) -> None:
        paddle.save({name: to_tensor(array) for name, array in arrays.items()}, str(path))

    def script(self, title: str, name: str, path: str, arguments: Arguments, wanted: Sequence[str]) -> str:
        return SCRIPT.text(title, name, path, arguments, wanted)


def _place_of(device: Device) -> str:
    """Where Paddle has the tensors of a device: on the CPU those of a project's own."""
    return device.name if isinstance(device, PaddleDevice) else "cpu"


def made() -> Framework:
    """See frameworks.load."""
    # Paddle's own handlers write a trace of C++ where a process is told to end, and take the place of pytest's.
    paddle.disable_signal_handler()
    return PaddleFramework()
