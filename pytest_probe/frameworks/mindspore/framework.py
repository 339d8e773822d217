"""MindSpore: its calls on its devices, and references and evidence that torch computes.

torch's corresponding call is the reference in float64, as for stored outputs: MindSpore's CPU has no kernel of half its
APIs, and one that is wrong must not be its own reference. So its CPU is a device like any other, named "CPU".
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mindspore
import numpy as np
import torch
from msgspec.structs import replace

from pytest_probe.errors import SettingsError, UnknownAPI
from pytest_probe.frameworks.base import API, Bound, Framework, LiteralCall
from pytest_probe.frameworks.mindspore import arrays
from pytest_probe.frameworks.mindspore.arrays import CPU, KINDS, MindSporeDevice
from pytest_probe.frameworks.mindspore.calls import MindSporeBound, MindSporeCalls
from pytest_probe.frameworks.mindspore.signatures import NAMESPACES
from pytest_probe.frameworks.mindspore.stored import StoredFramework, candidates
from pytest_probe.frameworks.torch.framework import TorchFramework
from pytest_probe.model.measurement import Clock
from pytest_probe.model.run import Arguments, Device, MeasuredCall, MemoryUse, Returned, Run, Wanted, Way
from pytest_probe.system.machine import last_level_cache, processor


def _lookup(path: str) -> Callable[..., Any]:
    """The function of that path ("mindspore.mint.add") now."""
    found: Callable[..., Any] = functools.reduce(getattr, path.split(".")[1:], mindspore)
    return found


class MindSporeFramework(StoredFramework):
    """On a device of MindSpore's its calls, everywhere else torch's."""

    title = "MindSpore"
    kinds = KINDS
    refusals = (RuntimeError, ValueError)

    def __init__(self) -> None:
        self._calls = MindSporeCalls()

    def candidates(self, namespace: str, api: str, namespaces: Mapping[str, str]) -> tuple[API, ...]:
        """Those of stored outputs, with MindSpore's own function for its devices. Raises UnknownAPI."""
        found = candidates(namespace, api, namespaces)
        if namespace in namespaces:
            return found
        path = f"{NAMESPACES[namespace][0]}.{api}"
        try:
            _lookup(path)
        except AttributeError:
            raise UnknownAPI(f"{namespace}.{api}: MindSpore {mindspore.__version__} has no {path}") from None
        return tuple(replace(each, on_device=functools.partial(_lookup, path)) for each in found)

    def describe(self) -> dict[str, str]:
        version = f"{mindspore.__version__}, beside torch {torch.__version__}"
        return {**super().describe(), "framework": "mindspore", "version": version}

    def device(self, name: str, option: str = "--probe-device") -> Any:
        # References run with torch.
        return super().device(name, option) if option == "--probe-device" else TorchFramework().device(name, option)

    def host(self) -> Device:
        device: Device = TorchFramework().host()
        return device

    def opened(self, name: str) -> Any:
        return arrays.opened(name)

    def count(self, kind: str) -> int:
        return 1

    def default_device(self) -> str:
        return arrays.default_device()

    def emulating(self, name: str) -> Any:
        raise SettingsError("--probe-emulate", name, "MindSpore's 16 bit is not emulated: leave the option out")

    def allowed(self, device: str) -> tuple[str, ...]:
        return ()

    def hardware(self, device: str) -> dict[str, str]:
        return {"hardware": processor()} if device == CPU else TorchFramework.hardware(device)

    def memory_left(self, device: Device) -> int | None:
        return None if isinstance(device, MindSporeDevice) else super().memory_left(device)

    def release_memory(self, device: Device) -> None:
        if not isinstance(device, MindSporeDevice):
            super().release_memory(device)

    def clock(self, device: Device) -> Clock:
        return arrays.clock(device.name) if isinstance(device, MindSporeDevice) else super().clock(device)

    def memory_use(self, device: Device, call: Callable[[], object]) -> MemoryUse | None:
        return None if isinstance(device, MindSporeDevice) else super().memory_use(device, call)

    def last_level_cache(self, device: Device) -> int:
        return last_level_cache() if device.name == CPU else 0

    def yardsticks(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        return (lambda source, target: target.copy_(source)), mindspore.mint.matmul

    def select(self, device: Device) -> None:
        """A process has one device of MindSpore's."""

    def is_lost(self, device: Device) -> bool:
        return False

    def has_no_kernel(self, error: BaseException) -> bool:
        return arrays.has_no_kernel(error) or super().has_no_kernel(error)

    def script(self, title: str, name: str, path: str, arguments: Arguments, wanted: Sequence[str]) -> str:
        # torch's call would say nothing of MindSpore's: the script shows both sides as they were saved.
        return TorchFramework.script(title, name, "", arguments, wanted)

    def literal_script(self, found: LiteralCall) -> str:
        return ""

    def run(self, function: Callable[..., Any], arguments: Arguments, way: Way, wanted: Wanted | None = None) -> Run:
        if isinstance(way.device, MindSporeDevice):
            return self._calls.run(function, arguments, way, wanted)
        return super().run(function, arguments, way, wanted)

    def bind(self, arguments: Arguments, way: Way, wanted: Wanted | None = None) -> Any:
        if isinstance(way.device, MindSporeDevice):
            return self._calls.bind(arguments, way, wanted)
        return super().bind(arguments, way, wanted)

    def left(self, bound: Bound, result: Any) -> Run:
        return self._calls.left(bound, result) if isinstance(bound, MindSporeBound) else super().left(bound, result)

    def returned(self, run: Run) -> Returned:
        found: Returned = self._calls.returned(run) if _is_own(run) else super().returned(run)
        return found

    def gradients(self, run: Run, seeds: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        return self._calls.gradients(run, seeds) if _is_own(run) else super().gradients(run, seeds)

    def take(self, value: Any, device: Device) -> Any:
        return self._calls.take(value, device) if isinstance(device, MindSporeDevice) else super().take(value, device)

    def repeated(self, call: MeasuredCall) -> Any:
        own = isinstance(call.way.device, MindSporeDevice)
        return self._calls.repeated(call) if own else super().repeated(call)


def _is_own(run: Run) -> bool:
    return isinstance(run.handle[1], MindSporeBound)


made: Callable[[], Framework] = MindSporeFramework  # see frameworks.load
