"""--probe-compile: each case's call on the device goes through a compiler; several compilers are several items."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.check import Case, CaseOutcome, CaseRuns, Checker, Question
from pytest_probe.errors import CompilerFailed, NoKernel, NotCompilable, SettingsError
from pytest_probe.frameworks.base import CompilerRun, Framework
from pytest_probe.frameworks.compilers import CompiledFunction, PythonCompiler
from pytest_probe.model.dump import Dump
from pytest_probe.model.result import number
from pytest_probe.model.run import Device
from pytest_probe.model.verdict import Answer, Verdict
from pytest_probe.options import DTYPE_CHOICES, NAMED
from pytest_probe.plugin.collectors import ProbeFile
from pytest_probe.plugin.feature import Feature
from pytest_probe.plugin.items import ProbeItem
from pytest_probe.plugin.session import ProcessSession

_NOISE = ("noise_ratio", "noise_rms")


class CompiledDevice:
    """A device whose calls go through a compiler. last is what that made of the last call; looks_for_stale: the first
    call of each kind is made on other values as well, to see whether what was made keeps something."""

    def __init__(self, device: Device, compiler: PythonCompiler, *, looks_for_stale: bool) -> None:
        self.name = device.name
        self.put, self.get = device.put, device.get
        self.compiler = compiler
        self.last: CompiledFunction | None = None
        self._device, self._looks = device, looks_for_stale
        self._looked: set[int] = set()

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Raises NotCompilable where nothing compiled ran, CompilerFailed where it keeps something of another call, and
        what the call and the compiler raise."""
        self.last = compiled = self.compiler.of(function, args, kwargs)
        before = compiled.runs
        result = self._device.call(compiled, args, kwargs)
        if compiled.runs == before:
            raise NotCompilable("nothing of the call was compiled, it ran as without a compiler")
        if self._looks and id(compiled) not in self._looked:
            self._looked.add(id(compiled))
            if stale := self.compiler.stale(function, args, kwargs, self._device.call):
                raise CompilerFailed(f"what was compiled keeps something of an earlier call: {stale}")
        return result


class CompiledCalls(Question):
    """One compiler, for all frameworks of a run. wrap gives the framework's device with it; option: what asks for it
    alone; suffix: how ids of items name it, where a run has several."""

    def __init__(
        self,
        name: str,
        checker: Checker,
        wrap: Callable[[CompilerRun, Device], CompiledDevice],
        option: str,
        suffix: str = "",
    ) -> None:
        self._name, self._wrap, self.suffix = name, wrap, suffix
        self.options = {"compile": option}
        self._runs = CaseRuns(checker.changed(device_wrapper=self._device))
        self._eager = checker.changed(diagnosed=False)
        self._devices: dict[str, CompiledDevice] = {}
        # What was compiled so far for each compiled function, by the function's id.
        self._made: dict[int, tuple[CompiledFunction, Mapping[str, float]]] = {}

    def _device(self, framework: Framework, device: Device) -> Device:
        found = self._devices[framework.name] = self._wrap(framework, device)
        return found

    def run(self, case: Case) -> CaseOutcome:
        self._runs.release(case)
        # It is made where the framework's device is first asked for.
        assert self._runs.checker.engines_of(case.dump.framework).device
        device = self._devices[case.dump.framework]
        before, device.last = device.compiler.counted(), device.last if self._runs.last else None
        with device.compiler.quiet():
            found = self._runs.run(case)
        made = {name: number - before[name] for name, number in device.compiler.counted().items()}
        seconds = made.pop("seconds")
        own = {**made, "seconds": seconds}
        if device.last is not None:
            # All that was compiled for calls like the last one: forward and backward are compiled by different cases.
            _, earlier = self._made.get(id(device.last), (device.last, {}))
            made = {name: number + earlier.get(name, 0) for name, number in made.items()}
            self._made[id(device.last)] = device.last, made
        verdict, eager = self._beside_eager(case, found.verdict)
        answer = Answer("compile", f"compiled by {self._name}" if verdict.outputs else "not compiled", totals=own)
        counts = [f"{number:,} {name[:-1] if number == 1 else name}" for name, number in made.items() if number]
        compiled = f"{answer.outcome}{': ' * bool(counts)}{', '.join(counts)}" if verdict.outputs else ""
        verdict = replace(verdict, answers=(*verdict.answers, answer))
        return replace(found, verdict=verdict, remarks=(compiled, eager))

    def _beside_eager(self, case: Case, verdict: Verdict) -> tuple[Verdict, str]:
        """The verdict, and on an error what the device does without a compiler. A kernel that eager mode has is not
        what a compiler lacks for want of the device."""
        lacking = verdict.verdict == "skip" and verdict.kind == NoKernel.kind
        if not lacking and verdict.verdict != "error":
            return verdict, ""
        eager = self._eager.run(case).verdict
        if lacking and eager.verdict == "skip":
            return verdict, ""
        if lacking:
            words = f"the compiled call has no kernel, and eager mode has one: {verdict.reason}"
            verdict = replace(verdict, verdict="error", kind=CompilerFailed.kind, reason=words)
        if eager.verdict == "error":
            return verdict, "eager errs too"
        worst = [max((number(each.metrics.get(name, 0)) for each in eager.outputs), default=0) for name in _NOISE]
        numbers = f": {worst[0]:.3g} / {worst[1]:.3g} noise scales (largest / RMS)" if any(worst) else ""
        return verdict, f"eager: {eager.verdict}{numbers}"


OPTION = NAMED["compile"].flag
# A word among the compilers: for any sizes.
_DYNAMIC = "dynamic"


class Compiled(Feature):
    def __init__(self, probe: ProcessSession) -> None:
        super().__init__(probe)
        self._dynamic = _DYNAMIC in probe.settings.compile
        self._environment: dict[str, str | None] = {}
        self._temporary: Path | None = None

    def prepare(self) -> None:
        here = [frameworks.load(name) for name in self.probe.frameworks if not frameworks.unavailable(name)]
        # What is compiled goes where this run's references go, or away with the run; never to the user's own. Compilers
        # read where when they are imported.
        cache = self.probe.settings.cache
        if cache is None:
            folder = self._temporary = Path(tempfile.mkdtemp(prefix="pytest-probe-compiled-"))
        else:
            folder = cache[0] / "compiled"
        wanted = [each.compiler_environment(folder, self.probe.workers) for each in here]
        values = {key: text for each in wanted for key, text in each.items()}
        self._environment = {name: os.environ.get(name) for name in values}
        os.environ.update(values)
        try:
            for name in self._names:
                if not re.fullmatch(r"[\w.-]+", name) or name in DTYPE_CHOICES:
                    words = "it stands in the ids of items: give a name of letters, digits, . and -, no dtype"
                    raise SettingsError(OPTION, name, words)
                for framework in here:
                    self._compiler(framework, name)
        except SettingsError:
            self.pytest_unconfigure()
            raise

    def header(self) -> Iterable[str]:
        sizes = ", for any sizes" if self._dynamic else ""
        yield f"probe: calls on the device are compiled by {', '.join(self._names)}{sizes}"

    @cached_property
    def _names(self) -> list[str]:
        """Raises SettingsError where there is no compiler."""
        names = [name for name in self.probe.settings.compile if name != _DYNAMIC]
        if not names:
            raise SettingsError(OPTION, _DYNAMIC, f"it says how one compiles: give a compiler, as inductor,{_DYNAMIC}")
        return names

    @cached_property
    def _questions(self) -> Sequence[CompiledCalls]:
        looks = self.probe.settings.repeat > 1
        found = []
        for name in self._names:

            def wrap(framework: CompilerRun, device: Device, name: str = name) -> CompiledDevice:
                return CompiledDevice(device, self._compiler(framework, name), looks_for_stale=looks)

            option = f"{name},{_DYNAMIC}" if self._dynamic else name
            suffix = f"[{name}]" if len(self._names) > 1 else ""
            found.append(CompiledCalls(name, self.probe.checker, wrap, option, suffix))
        return found

    def _compiler(self, framework: CompilerRun, name: str) -> PythonCompiler:
        own = self.probe.registry.compilers.get(name)
        try:
            return framework.compiler(name, own, dynamic=self._dynamic)
        except SettingsError as error:
            own_names = ", ".join(self.probe.registry.compilers)
            if not own_names:
                raise
            raise SettingsError(OPTION, name, f"{error}; this project has {own_names}") from error

    def items(self, parent: ProbeFile, dump: Dump) -> Iterator[ProbeItem]:
        # One compiler after the other: what the last case left serves the next one of the same compiler.
        for question in self._questions:
            yield from parent.cases(dump, question)

    def pytest_unconfigure(self) -> None:
        for name, value in self._environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
