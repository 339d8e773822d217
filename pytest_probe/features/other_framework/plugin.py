"""--probe-framework and --probe-reference-framework: records by another framework; without them, a second opinion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from pytest_probe.check import Checked, Checker
from pytest_probe.features.other_framework.opinion import DIFFER, asked_of, differing, opinion
from pytest_probe.plugin.feature import Feature
from pytest_probe.plugin.judged import Judged
from pytest_probe.plugin.session import Probe

# Of how many errors of an API another framework is asked.
ASKED = 5


class ByOtherFramework(Feature):
    judges = ("error",)

    def __init__(self, probe: Probe) -> None:
        super().__init__(probe)
        settings = probe.settings
        self.calls_by = settings.framework or "", settings.reference_framework or ""
        self._asked = Counter[str]()
        self._checkers: dict[str, Checker] = {}

    def header(self) -> Iterable[str]:
        for name in self.probe.frameworks if any(self.calls_by) else ():
            device, reference = self.probe.sides_of(name)
            yield f"probe: {name} records: the device's calls by {device}, float64 by {reference}"

    def judge(self, judged: Judged) -> None:
        checked = judged.checked
        # What a function of the user's gives, and what two calls were compared by, has an answer of its own.
        if checked.case.pair is not None or checked.paired is not None:
            return
        if any(self.calls_by):
            # An error that both frameworks show in float64, too, comes of their definitions.
            same = len(set(self.probe.sides_of(checked.case.dump.framework))) == 1
            if not same and (found := differing(self._on_cpu, checked)):
                words = f"{DIFFER}: in float64 on the CPU, too, {found}"
                judged.verdict = replace(judged.verdict, verdict="skip", reason=words, kind=DIFFER, outputs=())
        elif self.probe.settings.standard == "auto" and checked.worst is not None:
            self._ask(judged, checked)

    @cached_property
    def _on_cpu(self) -> Checker:
        return self._checker(device="cpu", standard="auto", calls={})

    def _ask(self, judged: Judged, checked: Checked) -> None:
        """What another framework's kernel gives where the CPU's errs. It changes no verdict."""
        module, api = asked_of(checked.case.dump.framework), checked.case.api
        self._asked[api] += 1
        on_cpu = checked.worst is not None and checked.worst.replay.source.name == "cpu"
        if not module or not on_cpu or self._asked[api] > ASKED:
            return
        if module not in self._checkers:
            self._checkers[module] = self._checker(framework=module)
        words = opinion(self._checkers[module], module, checked)
        if words:
            judged.verdict = replace(judged.verdict, notes=(*judged.verdict.notes, words))

    def _checker(self, calls: dict[str, Any] | None = None, **conditions: Any) -> Checker:
        """One that measures nothing and keeps nothing; calls: what the project has put in the place of APIs."""
        registry = None if calls is None else replace(self.probe.registry, calls=calls)
        return self.probe.quick_checker.changed(registry, measuring=None, cache=None, repeat=1, **conditions)
