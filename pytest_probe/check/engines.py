"""What a run was asked for, in plain data, and by that the framework and the devices of its cases."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.check import user_code
from pytest_probe.check.both_sides import FLOAT64
from pytest_probe.check.device_memory import DeviceMemory, Waiting
from pytest_probe.errors import SettingsError
from pytest_probe.frameworks.mapping.framework import by_other
from pytest_probe.model.case import Case
from pytest_probe.model.comparison import Comparison, Standard
from pytest_probe.model.device_modes import Behaviour, behaviour
from pytest_probe.model.run import RECORDED, Device, Way
from pytest_probe.model.verdict import Diagnosis
from pytest_probe.standards.diagnosis import Depth
from pytest_probe.system.machine import share_cores

if TYPE_CHECKING:
    from pytest_probe.check.outcome import Measuring
    from pytest_probe.check.reference_cache import CachedResults, ReferenceCache
    from pytest_probe.frameworks.base import Framework
    from pytest_probe.registry import Registry


# float64 operations from which on a contraction is sampled: about half a second of two cores.
FLOPS = 2e10

# Wraps the device under test in what a feature adds.
DeviceWrapper: TypeAlias = "Callable[[Framework, Device], Device]"
# Gives what a feature puts in the place of float64 on the CPU, from the framework of the device and the device: what
# runs references, and how.
ReferenceBy: TypeAlias = "Callable[[Framework, Device], tuple[Framework, Way]]"


class RunRequest(Struct, frozen=True):
    """What a run was asked for: device None is the framework's own choice, workers share the machine's cores,
    repeat is how often the device runs each case, allow names device modes, or says "auto" for what the framework's
    flags allow, or "none". reference_device is where float64 runs, flops how many a product or a convolution may take
    there in one run before it is sampled. measured: verdicts carry the measures that msprobe's files hold; baseline:
    what a baseline keeps. emulate: a device without kernels of 16 bit computes it in float32, and rounds. diagnosed:
    errors carry their likely cause; of further errors of an API than `whole_diagnoses`, None for no such number, those
    causes alone are tried that need no run; a fifth of that is enough where runs found nothing. locks: the folder in
    which processes lock the devices that they share. keeps_sides: what checking a case leaves has all outputs of both
    sides. cache: what keeps numbers of the reference side. judged: are results judged, or do records run on the device
    alone, to be measured? measuring: what measures each case's time and memory, None where neither is asked for.
    plotted: verdicts carry what plots draw. saves_all: the tensors of all cases are saved, in full. device_wrapper:
    wraps the device under test in what a feature adds. framework, reference_framework: what makes the device's calls of
    records, and those of float64, by the map of both; "" for the record's own framework. reference_by: gives what a
    feature puts in the place of float64 on the CPU."""

    device: str | None = None
    seed: int = 0
    inputs: str = "auto"
    standard: str = "auto"
    workers: int = 1
    allow: tuple[str, ...] = ("auto",)
    repeat: int = 1
    reference_device: str = "cpu"
    flops: float = FLOPS
    measured: bool = False
    emulate: bool = False
    baseline: bool = False
    diagnosed: bool = True
    locks: Path | None = None
    cache: ReferenceCache | None = None
    judged: bool = True
    measuring: Measuring | None = None
    whole_diagnoses: int | None = None
    plotted: bool = False
    saves_all: bool = False
    keeps_sides: bool = False
    device_wrapper: DeviceWrapper | None = None
    framework: str = ""
    reference_framework: str = ""
    reference_by: ReferenceBy | None = None

    @property
    def judges_parts(self) -> bool:
        """May a part of a large output tell what all of it is? By the noise standard, which says of each other element
        that it is within its limits; of one run of the device; and where a user does not ask for all tensors.
        Float64 alone adds up pieces without an error."""
        by_noise = self.standard in ("auto", "noise") and self.reference_by is None
        return by_noise and self.repeat == 1 and not self.saves_all and self.judged

    @property
    def judges_stored(self) -> bool:
        """Are the outputs judged that a dump stored?"""
        return self.device == RECORDED


# As how many errors of an API one counts whose cause no run of the reference finds.
IN_VAIN = 5


class Engines:
    """The framework, the device under test and the modes of a run; each is looked up when it is first asked for. name
    is what dumps call the framework; waiting is entered while the device is another process's."""

    def __init__(
        self,
        request: RunRequest,
        registry: Registry,
        name: str = frameworks.DEFAULT,
        waiting: Waiting = nullcontext,
        *,
        of_records: bool = False,
    ) -> None:
        self.request = request
        self.registry = registry
        self.name = name
        self._waiting = waiting
        self._of_records = of_records
        self._spent: Counter[str] = Counter()

    @cached_property
    def framework(self) -> Framework:
        """What the device under test runs. Raises Unsupported where it cannot run here."""
        framework = self._made(self.request.framework)
        if self.request.workers > 1:
            framework.share_threads(self.request.workers)
            share_cores(self.request.workers)
        return framework

    @cached_property
    def reference_framework(self) -> Framework:
        """What the reference runs. Raises Unsupported where it cannot run here."""
        if self._reference_by is not None:
            return self._reference_by[0]
        if not self._of_records or self.request.reference_framework == self.request.framework:
            return self.framework
        return self._made(self.request.reference_framework)

    def _made(self, package: str) -> Framework:
        if not self._of_records or package in ("", frameworks.MODULES.get(self.name)):
            return frameworks.load(self.name, stored=self.request.judges_stored)
        return by_other(self.name, frameworks.named(package), self.registry.mappings)

    @cached_property
    def device(self) -> Device:
        """The device under test, wrapped in what a feature adds."""
        wrapper = self.request.device_wrapper
        return self._device if wrapper is None else wrapper(self.framework, self._device)

    @cached_property
    def _device(self) -> Device:
        """The device itself; the CPU where outputs are judged that a dump stored. Raises SettingsError where the
        framework has none of that name."""
        if self.request.judges_stored:
            return self.framework.host()
        name = self.request.device or self.framework.default_device()
        made = self.registry.devices.get(name.split(":", 1)[0])
        if self.request.emulate:
            if made is not None:
                raise SettingsError(
                    "--probe-emulate", name, "it is a device of this project's own: leave the option out"
                )
            return self.framework.emulating(name)
        if made is not None:
            return user_code.device(made, name)
        own = frameworks.device_of(self.framework.package, name) if self.framework.translates else name
        device = self.framework.device(own)
        self.framework.select(device)
        return device

    @property
    def shared_devices(self) -> tuple[str, ...]:
        """The names of the devices that workers share: all of a kind, where one was named without a number. Empty where
        that is one device alone."""
        name = self.request.device or self.framework.default_device()
        if self.request.judges_stored or self.request.emulate or name.split(":", 1)[0] in self.registry.devices:
            return ()
        found = self.framework.all_devices(name)
        return found if len(found) > 1 else ()

    @cached_property
    def memory(self) -> DeviceMemory:
        """The memory of the device under test."""
        return DeviceMemory(self.framework, self.device, self.request.locks, self._waiting)

    @property
    def standard(self) -> Standard:
        """What judges. Only what a project wrote is guarded: an exception of a standard of ours is a fault of ours, and
        is shown as one."""
        registered = self.registry.standards[self.request.standard]
        return registered if type(registered) in user_code.OURS else user_code.Guarded(registered)

    @property
    def device_name(self) -> str:
        return RECORDED if self.request.judges_stored else self.device.name

    @property
    def modes(self) -> tuple[Behaviour, ...]:
        """The device modes that are allowed: "auto" asks anew, since a hook of the user's may set flags for some
        items."""
        allow = self.request.allow
        if allow == ("auto",):
            with self.framework.users_state("recorded"):
                allow = self.framework.allowed(self.device_name)
        return tuple(behaviour(name) for name in allow if name != "none")

    def modes_of(self, comparison: Comparison) -> tuple[Behaviour, ...]:
        """The modes that count for an output. The framework's flags allow what its own calls do, stored outputs what
        those of the recorded program do: in a user's function they excuse nothing but what the processor does."""
        by_flags = self.request.allow == ("auto",)
        modes = self.modes
        if by_flags:
            modes += tuple(map(behaviour, comparison.case.modes))
        return tuple(mode for mode in modes if mode.flushes or not (by_flags and comparison.case.of_user))

    def depth(self, api: str) -> Depth:
        """How far the cause of an error of an API is looked for."""
        if not self.request.diagnosed:
            return "none"
        limit = self.request.whole_diagnoses
        return "whole" if limit is None or self._spent[api] < limit else "quick"

    def diagnosed(self, api: str, found: Diagnosis) -> None:
        """Take note of an error of an API whose cause was looked for: runs that found none count several times."""
        if not found.quick:
            self._spent[api] += 1 if found.by_runs else IN_VAIN

    def settled(self) -> AbstractContextManager[None]:
        """What the process has set counts for nothing in here but where the device runs; NumPy and warnings raise
        nothing. Raises Unsupported where the framework cannot run here."""
        own, other = self.framework, self.reference_framework
        return nothing_raised(*(framework.fixed_state() for framework in dict.fromkeys((own, other))))

    @cached_property
    def _reference_by(self) -> tuple[Framework, Way] | None:
        made = self.request.reference_by
        return None if made is None else made(self.framework, self.device)

    @cached_property
    def reference(self) -> Way:
        """How the reference runs. Raises SettingsError where the framework has no such device."""
        if self._reference_by is not None:
            return self._reference_by[1]
        place = self.reference_framework.device(self.request.reference_device, "--probe-reference-device").name
        return replace(FLOAT64, place=place)

    @property
    def float64_elsewhere(self) -> bool:
        """Does float64 run on another device than the CPU? A feature's reference is what it is."""
        return self.request.reference_by is None and self.reference.place != "cpu"

    def cached(self, case: Case) -> CachedResults | None:
        """What earlier runs kept of the case's reference side; None without a cache or a reference side, and for
        functions and calls that no record names."""
        if self.request.cache is None or not self.request.judged or case.pair is not None or case.arguments is not None:
            return None
        return self.request.cache.results(self, case)

    def describe(self) -> Mapping[str, str]:
        """Framework, version, device, its hardware and the flags that change numerics."""
        modes = ", ".join(mode.name for mode in self.modes) or "none"
        places = {"device": self.device_name, **self.framework.hardware(self.device_name)}
        emulated = {"emulated": "16 bit in float32"} if self.request.emulate else {}
        reference = {"reference_device": self.reference.place}
        if self.reference_framework is not self.framework:
            other = self.reference_framework.describe()
            reference["reference_framework"] = f"{other['framework']} {other['version']}"
        return {**places, **reference, "modes": modes, **emulated, **self.framework.describe()}


@contextmanager
def nothing_raised(*further: AbstractContextManager[None]) -> Iterator[None]:
    """NumPy's errors as by default; a warning that would be raised is shown; and what further holds in here."""
    with ExitStack() as states:
        states.enter_context(np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"))
        if "error" in [filter[0] for filter in warnings.filters]:
            states.enter_context(warnings.catch_warnings())
            shown = [("default" if action == "error" else action, *rest) for action, *rest in warnings.filters]
            warnings.resetwarnings()
            warnings.filters[:] = shown  # type: ignore[index]
        for state in further:
            states.enter_context(state)
        yield
