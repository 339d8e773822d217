"""PyTorch: which names may be called, what devices there are, stored tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
import torch.overrides
from msgspec.structs import replace

from pytest_probe.errors import SettingsError
from pytest_probe.frameworks.base import API, Bound, Framework, Functions, LiteralCall, Repeated
from pytest_probe.frameworks.torch import (
    allowlist,
    autocast,
    borders,
    calls,
    choices,
    clocks,
    defaults,
    findings,
    flags,
    kernels,
    memory_use,
    modules,
    repeated,
    safety,
    sizes,
    state,
)
from pytest_probe.frameworks.torch.arrays import to_array, to_tensor
from pytest_probe.frameworks.torch.hardware import hardware
from pytest_probe.frameworks.torch.literals import LITERAL
from pytest_probe.frameworks.torch.memory import is_device_memory, memory_errors, memory_left, release_memory
from pytest_probe.frameworks.torch.missing import completions
from pytest_probe.frameworks.torch.script import SCRIPT
from pytest_probe.frameworks.torch.signatures import canonical
from pytest_probe.frameworks.torch.solved import solved
from pytest_probe.frameworks.torch.widening import widening
from pytest_probe.frameworks.widened import Widened
from pytest_probe.model import running_side
from pytest_probe.model.arguments import Arguments, BoundCall
from pytest_probe.model.clock import Clock
from pytest_probe.model.comparison import Choice, Comparison, KnownFinding
from pytest_probe.model.dump import Argument
from pytest_probe.model.run import Device, Kernel, MeasuredCall, MemoryUse, Returned, Run, State, Wanted, Way
from pytest_probe.system.decoding import suggestion
from pytest_probe.user_errors import first_line, said

# What torch's errors say, in lower case, where a device has no kernel: it gives them no type of their own.
NO_KERNEL = (
    "not implemented for",
    "could not run 'aten::",
    "no kernel image",
    "not currently implemented for",
    "low precision dtypes not supported",
    "mkl fft doesn't support tensors of type",
    "derivative for aten::",  # a compiler wants the gradient together with the forward
    "without overflow",  # a Python number that the dtype cannot hold
    "does not have a deterministic implementation",  # and the user takes no other
)


class TorchDevice:
    """A device of torch's own: cpu, cuda, npu, xpu, mps, ..."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.place = torch.device(name)

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self.place)

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return function(*args, **kwargs)

    def get(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.cpu()


# Kinds of devices that people name, for a name that is none.
KINDS = ("cpu", "cuda", "npu", "xpu", "mps", "hpu")


class TorchFramework:
    """torch, as the execution needs it."""

    name = "pytorch"

    def describe(self) -> dict[str, str]:
        return {
            "framework": "torch",
            "version": torch.__version__,
            "threads": str(torch.get_num_threads()),
            **flags.described(),
            **({"state": set_by_user} if (set_by_user := state.differing()) else {}),
        }

    def hardware(self, device: str) -> dict[str, str]:
        return hardware(device)

    def memory_left(self, device: Device) -> int | None:
        return memory_left(calls.place(device))

    def release_memory(self, device: Device) -> None:
        release_memory(calls.place(device))

    def clock(self, device: Device) -> Clock:
        return clocks.clock(device, own=isinstance(device, TorchDevice))

    @memory_errors
    def repeated(self, call: MeasuredCall) -> AbstractContextManager[Repeated]:
        return repeated.repeated(call)

    @memory_errors
    def memory_use(self, device: Device, call: Callable[[], object]) -> MemoryUse | None:
        return memory_use.memory_use(calls.place(device), call)

    def last_level_cache(self, device: Device) -> int:
        return clocks.last_level_cache(calls.place(device))

    def yardsticks(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        return _copy, torch.matmul

    def is_device_memory(self, error: BaseException) -> bool:
        return is_device_memory(error)

    def fixed_state(self) -> AbstractContextManager[None]:
        return state.Fixed()

    def users_state(self, wanted: State) -> AbstractContextManager[None]:
        return state.OfUser(wanted)

    def allowed(self, device: str) -> tuple[str, ...]:
        return tuple(flags.allowed(device.split(":", 1)[0]))

    def plain_convolutions(self, dtype: str) -> bool:
        return flags.plain_convolutions(dtype)

    def computes_narrow(self, dtype: str) -> bool:
        return False

    def random_state(self) -> bytes:
        return torch.get_rng_state().numpy().tobytes()

    def registered_kernels(self, place: str) -> tuple[str, ...] | None:
        return kernels.told(place)

    def share_threads(self, workers: int) -> None:
        torch.set_num_threads(max(1, torch.get_num_threads() // workers))

    def default_device(self) -> str:
        accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        return "cpu" if accelerator is None else accelerator.type

    def device(self, name: str, option: str = "--probe-device") -> TorchDevice:
        try:
            device = TorchDevice(name)
            # torch takes any name until memory is asked for.
            torch.empty(0, device=device.place)
        except (RuntimeError, AssertionError, ImportError) as error:  # ImportError: the package of a backend
            known = ", ".join(sorted({"cpu", self.default_device()}))
            wanted = f"torch says: {first_line(error)}; found here: {known}{suggestion(KINDS, name.partition(':')[0])}"
            raise SettingsError(option, name, wanted) from error
        return device

    def all_devices(self, name: str) -> tuple[str, ...]:
        kind, colon, _ = name.partition(":")
        try:
            count = 1 if colon or kind == "cpu" else torch.get_device_module(kind).device_count()
        except (AttributeError, RuntimeError):
            count = 1
        return tuple(f"{kind}:{number}" for number in range(count)) if count > 1 else (name,)

    def select(self, device: Device) -> None:
        place = calls.place(device)
        if place.type != "cpu" and place.index is not None:
            torch.get_device_module(place.type).set_device(place.index)

    def is_lost(self, device: Device) -> bool:
        place = calls.place(device)
        if place.type == "cpu":
            return False
        try:
            torch.get_device_module(place.type).synchronize()
        except RuntimeError:
            return True
        except (AttributeError, NotImplementedError):
            return False
        return False

    def emulating(self, name: str) -> TorchDevice:
        raise SettingsError("--probe-emulate", name, "torch has 16-bit kernels there: leave the option out")

    def candidates(self, namespace: str, api: str, namespaces: Mapping[str, str]) -> tuple[API, ...]:
        return allowlist.candidates(namespace, api, namespaces)

    def completions(self, api: API, args: Sequence[Argument], dtype: str | None) -> Iterable[tuple[str, Any]]:
        return completions(api.lookup(), canonical(api.path), args, dtype)

    def solved(self, api: API, args: Sequence[Any], output: np.ndarray) -> Iterable[Mapping[str, Any]]:
        return solved(canonical(api.path), args, output)

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

    @running_side.reference
    def bytes_inside(
        self,
        name: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        way: Way,
        limit: int,
    ) -> int:
        return sizes.bytes_inside(name, function, args, kwargs, way, limit)

    def as_single(self, function: Callable[..., Any], largest: float, name: str) -> Callable[..., Any]:
        return functools.partial(defaults.as_single, function, largest)

    def rounded(self, tensor: torch.Tensor, dtype: str) -> torch.Tensor:
        # Values are rounded, gradients pass as if they were not.
        return tensor + (tensor.to(getattr(torch, dtype)).to(tensor.dtype) - tensor).detach()

    def border(self, tensor: torch.Tensor) -> torch.Tensor:
        return borders.border(tensor)

    def noting_choices(self, function: Callable[..., Any], noted: list[Choice]) -> Callable[..., Any]:
        return choices.noting(function, noted)

    def known_findings(self, comparison: Comparison) -> Iterable[KnownFinding]:
        return findings.known(comparison)

    def widened(self, reference: Callable[..., Any]) -> Widened:
        return Widened(reference, widening)

    def casts(self, path: str) -> bool:
        return autocast.casts(path)

    @memory_errors
    def take(self, value: Any, device: Device) -> Any:
        return calls.taken(value, device)

    def functions(self, function: Callable[..., Any], reference: Callable[..., Any]) -> Functions:
        return modules.functions(function, reference)

    @memory_errors
    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any], way: Way, wanted: Wanted | None) -> calls.TorchBound:
        return calls.bind_function(args, kwargs, way, wanted)

    @memory_errors
    def left(self, bound: Bound, result: Any) -> Run:
        assert isinstance(bound, calls.TorchBound)
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
        way = way if computed else replace(way, device=TorchDevice("meta"))
        return calls.would_return(function, args, kwargs, way)

    @running_side.reference
    @memory_errors
    def gradients(self, run: Run, seeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return calls.gradients(run, seeds)

    @running_side.reference
    @memory_errors
    def kernels(self, run: Callable[[], object]) -> tuple[Kernel, ...]:
        with autocast.WatchMode() as watch:
            run()
        return tuple(watch.seen)

    def has_no_kernel(self, error: BaseException) -> bool:
        text = said(error).lower()
        return isinstance(error, NotImplementedError) or any(words in text for words in NO_KERNEL)

    @memory_errors
    def load(self, file: Path | BinaryIO) -> np.ndarray:
        try:
            value = torch.load(file, map_location="cpu", weights_only=True)
        except OSError:
            raise
        except Exception as error:  # torch.load raises whatever a damaged file happens to trip over
            raise ValueError(first_line(error)) from error
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"holds a {type(value).__name__}, not a tensor")
        return to_array(value)

    def script(self, title: str, name: str, path: str, arguments: Arguments, wanted: Sequence[str]) -> str:
        return SCRIPT.text(title, name, path, arguments, wanted)

    def literal_script(self, found: LiteralCall) -> str:
        return LITERAL.text(found)

    @memory_errors
    def save(self, path: Path, arrays: Mapping[str, np.ndarray]) -> None:
        # Through a file of Python's, which says what is wrong with the disk: torch's own says that it broke.
        with path.open("wb") as file:
            torch.save({name: to_tensor(array) for name, array in arrays.items()}, file)


def _copy(source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return target.copy_(source)


def made() -> Framework:
    """See frameworks.load."""
    return TorchFramework()
