"""Kinds of devices: the CPU as it is, or what its runs happen in; and what the CPU gives beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.frameworks.base import Framework
from pytest_probe.model.run import Arguments, Device, Run, Wanted, Way

Surroundings: TypeAlias = Callable[[], contextlib.AbstractContextManager[Any]]


class Kind(Struct, frozen=True):
    """A kind of device: what its runs happen in, none for the CPU itself, and the mode that allows it, "none" where
    none does.

    faulty: it is wrong, whatever is allowed. tiny: its samples are made of tiny numbers. emulate: 16 bit is computed in
    float32. visible: of the RMS of an output, what a fault must move one of its elements by to count. variants differ
    from sample to sample.
    """

    name: str
    variants: tuple[Surroundings, ...]
    dtypes: tuple[str, ...]
    allow: str = "none"
    faulty: bool = False
    tiny: bool = False
    framework: str = frameworks.DEFAULT
    emulate: bool = False
    visible: float = 0.0

    @property
    def is_mode(self) -> bool:
        """Does it compute as the CPU does, but for a mode?"""
        return self.faulty or self.allow not in ("none", "auto")


class Emulated:
    """The CPU under another name, with the surroundings of a kind."""

    def __init__(self, kind: Kind, cpu: Any) -> None:
        self.name = kind.name.replace(" ", "-")
        self.place = getattr(cpu, "place", None)
        self.kind = kind
        self.cpu: Device = cpu
        self.variant = 0

    @property
    def surroundings(self) -> contextlib.AbstractContextManager[Any]:
        return self.kind.variants[self.variant % len(self.kind.variants)]()

    def put(self, tensor: Any) -> Any:
        return self.cpu.put(tensor)

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return self.cpu.call(function, args, kwargs)

    def get(self, tensor: Any) -> Any:
        return self.cpu.get(tensor)


class Watched:
    """A framework, whose runs on an emulated device happen in its surroundings, gradients too.

    plain: what the CPU's own kernels give, by name. draws: a reference has drawn random numbers.
    """

    def __init__(self, framework: Framework) -> None:
        self.framework = framework
        self.plain: dict[str, Any] = {}
        self.draws = False
        self._beside: Run | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.framework, name)

    def run(self, function: Callable[..., Any], arguments: Arguments, way: Way, wanted: Wanted | None = None) -> Run:
        if isinstance(way.device, Emulated):
            beside = replace(way, device=way.device.cpu)
            self._beside = self.framework.run(function, arguments, beside, wanted)
            self.plain = dict(self._beside.outputs)
            # The surroundings are the device's own: no state of a user's takes their place.
            with way.device.surroundings:
                return self.framework.run(function, arguments, replace(way, state="fixed"), wanted)
        before = self.framework.random_state()
        run = self.framework.run(function, arguments, way, wanted)
        self.draws |= before != self.framework.random_state()
        return run

    def gradients(self, run: Run, seeds: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        device = run.handle[1].way.device
        if not isinstance(device, Emulated):
            return self.framework.gradients(run, seeds)
        assert self._beside is not None
        plain = self.framework.gradients(self._beside, seeds)
        self.plain = {f"grad.{name}": value for name, value in plain.items()}
        with device.surroundings:
            return self.framework.gradients(run, seeds)

    def alike(self, name: str, actual: np.ndarray, visible: float = 0.0) -> bool:
        """Is an output, bit for bit, what the CPU's own kernels give? Or moved by less than that share of its RMS?"""
        plain = self.plain.get(name)
        if plain is None and self._beside is not None and not name.startswith(("grad.", "output.")):
            plain = self._beside.after(name)
        other = np.asarray(plain)
        if plain is None or other.dtype != actual.dtype:
            return False
        if not visible or other.dtype.kind != "f":
            return other.tobytes() == actual.tobytes()
        with np.errstate(all="ignore"):
            moved = np.abs(actual.astype(np.float64) - other)
            return not (moved >= visible * np.sqrt(np.mean(other.astype(np.float64) ** 2))).any() or not moved.any()
