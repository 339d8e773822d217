"""--probe-compile: each case's call on the device goes through a compiler; several compilers are several items."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.check import Case, CaseRuns, Checked
from pytest_probe.errors import CompilerFailed, NoKernel, SettingsError
from pytest_probe.features.compiled.device import CompiledDevice
from pytest_probe.frameworks.base import CompiledFunction, Compiler, Framework
from pytest_probe.model.dump import Dump
from pytest_probe.model.measurement import Compilation
from pytest_probe.model.result import PortableId, Result, number
from pytest_probe.model.run import Device
from pytest_probe.model.verdict import Verdict
from pytest_probe.options import DTYPE_CHOICES, NAMED
from pytest_probe.plugin.collectors import ProbeFile
from pytest_probe.plugin.feature import Feature, Summary
from pytest_probe.plugin.items import ProbeItem
from pytest_probe.plugin.session import Probe

OPTION = NAMED["compile"].flag
# A word among the compilers: for any sizes.
_DYNAMIC = "dynamic"
_NOISE = ("noise_ratio", "noise_rms")


class Compilers(Struct):
    """One compiler, for all frameworks of a run. runs checks cases by it; devices are its devices by framework; made
    has for each compiled function what was compiled so far, by the function's id."""

    name: str
    runs: CaseRuns
    devices: dict[str, CompiledDevice]
    made: dict[int, tuple[CompiledFunction, Compilation]] = field(default_factory=dict)

    def run(self, case: Case) -> tuple[Checked, Compilation]:
        """A case, and what was compiled for it."""
        self.runs.release(case)
        device = self.device(case.dump.framework)
        before, device.last = device.compiler.counted(), device.last if self.runs.last else None
        with device.compiler.quiet():
            found = self.runs.run(case)
        return found, self._noted(device, device.compiler.counted().since(before))

    def device(self, framework: str) -> CompiledDevice:
        if framework not in self.devices:
            # It is made where the framework's device is first asked for.
            assert self.runs.checker.setup_of(framework).device
        return self.devices[framework]

    def _noted(self, device: CompiledDevice, made: Compilation) -> Compilation:
        """All that was compiled for calls like the last one: forward and backward are compiled by different cases."""
        if device.last is None:
            return made
        _, before = self.made.get(id(device.last), (device.last, Compilation(self.name)))
        whole = before.with_more(made)
        self.made[id(device.last)] = device.last, whole
        return whole


class CompiledItem(ProbeItem):
    """A case whose call on the device goes through a compiler."""

    compilers: Compilers
    named: bool
    compilation: Compilation | None = None

    def judge(self) -> Verdict:
        checked, self.compilation = self.compilers.run(self.case)
        self.probe.note_loss(checked)
        verdict = self._against_eager(checked.verdict)
        note = str(self.compilation) if verdict.outputs else ""
        eager = self._eager() if verdict.verdict == "error" else ""
        return self.further(checked, verdict, note, eager)

    def _against_eager(self, verdict: Verdict) -> Verdict:
        """A kernel that eager mode has is not what a compiler lacks for want of the device."""
        if verdict.verdict != "skip" or verdict.kind != NoKernel.kind:
            return verdict
        if self.probe.quick_checker.run(self.case).verdict.verdict == "skip":
            return verdict
        words = f"the compiled call has no kernel, and eager mode has one: {verdict.reason}"
        return replace(verdict, verdict="error", kind=CompilerFailed.kind, reason=words)

    def _eager(self) -> str:
        """What the device does without a compiler."""
        found = self.probe.quick_checker.run(self.case).verdict
        if found.verdict == "error":
            return "eager errs too"
        worst = [max((number(each.metrics.get(name, 0)) for each in found.outputs), default=0) for name in _NOISE]
        numbers = f": {worst[0]:.3g} / {worst[1]:.3g} noise scales (largest / RMS)" if any(worst) else ""
        return f"eager: {found.verdict}{numbers}"

    @property
    def portable_id(self) -> PortableId:
        found = super().portable_id
        return replace(found, compiler=self.compilers.name) if self.named else found

    @property
    def run_key(self) -> object:
        return super().run_key, self.compilers.name

    @property
    def _addressed(self) -> str:
        return self.case.id

    def _command(self) -> str:
        """That of this compiler alone."""
        given = f"{OPTION}={shlex.quote(self.probe.settings.given['compile'])}"
        return super()._command().replace(given, f"{OPTION}={shlex.quote(self.compilers.name)}")

    def result(self, verdict: Verdict, duration: float) -> Result:
        found = self.compilation
        seconds = 0.0 if found is None else found.seconds
        return replace(super().result(verdict, max(0.0, duration - seconds)), compiled=found)

    def forget(self) -> None:
        super().forget()
        self.compilation = None


class Compiled(Feature):
    def __init__(self, probe: Probe) -> None:
        super().__init__(probe)
        self._environment: dict[str, str | None] = {}
        self._temporary: Path | None = None
        self._results = 0
        self._seconds = 0.0

    def prepare(self) -> None:
        here = [frameworks.load(name) for name in self.probe.frameworks if not frameworks.unavailable(name)]
        # Compilers read it when they are imported.
        self._set_environment(here)
        try:
            for name in self._names:
                _check_name(name)
                for framework in here:
                    self._compiler(framework, name)
        except SettingsError:
            self.pytest_unconfigure()
            raise

    def header(self) -> Iterable[str]:
        sizes = ", for any sizes" if _DYNAMIC in self.probe.settings.compile else ""
        yield f"probe: calls on the device are compiled by {', '.join(self._names)}{sizes}"

    @cached_property
    def _names(self) -> list[str]:
        """Raises SettingsError where there is no compiler."""
        names = [name for name in self.probe.settings.compile if name != _DYNAMIC]
        if not names:
            raise SettingsError(OPTION, _DYNAMIC, f"it says how one compiles: give a compiler, as inductor,{_DYNAMIC}")
        return names

    @cached_property
    def _compilers(self) -> Mapping[str, Compilers]:
        return {name: self._made(name) for name in self._names}

    def _made(self, name: str) -> Compilers:
        devices: dict[str, CompiledDevice] = {}

        def around(framework: Framework, device: Device) -> Device:
            compiler = self._compiler(framework, name)
            looks = self.probe.settings.repeat > 1
            found = devices[framework.name] = CompiledDevice(device, compiler, looks_for_stale=looks)
            return found

        return Compilers(name, CaseRuns(self.probe.checker.changed(around=around)), devices)

    def _compiler(self, framework: Framework, name: str) -> Compiler:
        own = self.probe.registry.compilers.get(name)
        try:
            return framework.compiler(name, own, dynamic=_DYNAMIC in self.probe.settings.compile)
        except SettingsError as error:
            own_names = ", ".join(self.probe.registry.compilers)
            if not own_names:
                raise
            raise SettingsError(OPTION, name, f"{error}; this project has {own_names}") from error

    def items(self, parent: pytest.Collector, dump: Dump) -> Iterator[ProbeItem]:
        assert isinstance(parent, ProbeFile)
        several = len(self._compilers) > 1
        # One compiler after the other: what the last case left serves the next one of the same compiler.
        for compilers in self._compilers.values():
            suffix = f"[{compilers.name}]" if several else ""
            for item in parent.cases(dump, CompiledItem, suffix=suffix):
                item.compilers, item.named = compilers, several
                yield item

    def add(self, result: Result) -> None:
        if result.compiled is not None:
            self._results += 1
            self._seconds += result.compiled.seconds

    def summary(self, width: int) -> Summary:
        return Summary([f"compiled: {self._results:,} cases, {self._seconds:.1f} s, which durations leave out"])

    def _set_environment(self, here: Sequence[Framework]) -> None:
        """What is compiled goes where this run's references go, or away with the run; never to the user's own."""
        cache = self.probe.settings.cache
        if cache is None:
            folder = self._temporary = Path(tempfile.mkdtemp(prefix="pytest-probe-compiled-"))
        else:
            folder = cache[0] / "compiled"
        values = {
            key: text for each in here for key, text in each.compiler_environment(folder, self.probe.workers).items()
        }
        self._environment = {name: os.environ.get(name) for name in values}
        os.environ.update(values)

    def pytest_unconfigure(self) -> None:
        for name, value in self._environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


def _check_name(name: str) -> None:
    """Raises SettingsError for one that an item's id cannot have."""
    if not re.fullmatch(r"[\w.-]+", name) or name in DTYPE_CHOICES:
        raise SettingsError(
            OPTION, name, "it stands in the ids of items: give a name of letters, digits, . and -, no dtype"
        )
