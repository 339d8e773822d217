"""--probe-against-call and --probe-against-framework: each recorded call by two implementations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from msgspec.structs import replace

from pytest_probe.errors import SettingsError
from pytest_probe.features.against_call.calls import TwoCalls
from pytest_probe.features.against_call.options import OPTION, registered
from pytest_probe.model.dump import Dump
from pytest_probe.plugin.collectors import ProbeFile
from pytest_probe.plugin.feature import Feature
from pytest_probe.plugin.items import ProbeItem
from pytest_probe.plugin.session import Probe
from pytest_probe.registry import Registry
from pytest_probe.selection import apis_of, nearest


class AgainstCall(Feature):
    @cached_property
    def _second(self) -> Registry:
        """Raises SettingsError."""
        assert self.probe.settings.against_call is not None
        return registered(self.probe.settings.against_call)

    @cached_property
    def _calls(self) -> TwoCalls:
        """Both sides have one reference: the project's, or where it has none that of the module."""
        first, second = self.probe.registry, self._second
        a = replace(
            first,
            references={**second.references, **first.references},
            namespaces={**second.namespaces, **first.namespaces},
        )
        b = replace(a, calls={**first.calls, **second.calls})
        checker = self.probe.checker
        return TwoCalls(checker.changed(a, keeps_sides=True), checker.changed(b, keeps_sides=True))

    def prepare(self) -> None:
        module, calls = str(self.probe.settings.against_call), self._second.calls
        if not self.probe.dumps.paths:
            raise SettingsError(OPTION, module, "it needs recorded calls: add --probe-dump=PATH")
        known = apis_of(dump for _, dump in self.probe.dumps.readable())
        if known and known.isdisjoint(calls):
            near = dict.fromkeys(name for api in calls for name in nearest(api, known))
            advice = f"; near to them: {', '.join(near)}" if near else ""
            raise SettingsError(OPTION, module, f"no record is one of its calls ({', '.join(sorted(calls))}){advice}")

    def header(self) -> Iterable[str]:
        calls = ", ".join(sorted(self._second.calls))
        yield f"probe: A is what runs here, B {self.probe.settings.against_call}: {calls}"

    def items(self, parent: ProbeFile, dump: Dump) -> Iterator[ProbeItem]:
        return parent.cases(dump, self._calls, self._second.calls)


class AgainstFramework(Feature):
    def __init__(self, probe: Probe) -> None:
        super().__init__(probe)
        self._other = str(probe.settings.against_framework)

    @cached_property
    def _calls(self) -> TwoCalls:
        """Both sides have one reference."""
        checker = self.probe.checker
        sides = checker.changed(keeps_sides=True), checker.changed(keeps_sides=True, framework=self._other)
        return TwoCalls(*sides, self._other)

    def header(self) -> Iterable[str]:
        yield f"probe: A is what {', '.join(self.probe.frameworks)} computes, B what {self._other} does"

    def items(self, parent: ProbeFile, dump: Dump) -> Iterator[ProbeItem]:
        return parent.cases(dump, self._calls)
