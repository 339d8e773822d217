"""--probe-compile: each case's call on the device goes through a compiler; several compilers are several items."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from pytest_probe import frameworks
from pytest_probe.errors import SettingsError
from pytest_probe.features.compiled.calls import CompiledCalls, CompiledDevice
from pytest_probe.frameworks.base import Compiler, Compilers, Framework
from pytest_probe.model.dump import Dump
from pytest_probe.model.run import Device
from pytest_probe.options import DTYPE_CHOICES, NAMED
from pytest_probe.plugin.collectors import ProbeFile
from pytest_probe.plugin.feature import Feature
from pytest_probe.plugin.items import ProbeItem
from pytest_probe.plugin.session import Probe

OPTION = NAMED["compile"].flag
# A word among the compilers: for any sizes.
_DYNAMIC = "dynamic"


class Compiled(Feature):
    def __init__(self, probe: Probe) -> None:
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

            def around(framework: Framework, device: Device, name: str = name) -> CompiledDevice:
                return CompiledDevice(device, self._compiler(framework, name), looks_for_stale=looks)

            option = f"{name},{_DYNAMIC}" if self._dynamic else name
            suffix = f"[{name}]" if len(self._names) > 1 else ""
            found.append(CompiledCalls(name, self.probe.checker, around, option, suffix))
        return found

    def _compiler(self, framework: Compilers, name: str) -> Compiler:
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
