"""--probe-framework and --probe-reference-framework: calls of records by another framework."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cached_property

from msgspec.structs import replace

from pytest_probe.check import Checked, Checker
from pytest_probe.features.other_framework.definitions import DIFFER, Definitions
from pytest_probe.features.other_framework.opinion import asked_of, opinion
from pytest_probe.frameworks.mapping.table import entries_of
from pytest_probe.plugin.feature import Feature
from pytest_probe.plugin.judged import Judged
from pytest_probe.plugin.session import Probe


class ByOtherFramework(Feature):
    def prepare(self) -> None:
        path = self.probe.settings.mapping
        if path is not None:
            # What a project registers in Python is its last word.
            self.probe.registry.mappings = {**entries_of(path), **self.probe.registry.mappings}

    def header(self) -> Iterable[str]:
        for name in self.probe.frameworks:
            device, reference = self.probe.sides_of(name)
            if not device:
                continue
            yield f"probe: {name} records: the device's calls by {device}, float64 by {reference}"

    @cached_property
    def _definitions(self) -> Definitions:
        checker = self.probe.quick_checker
        conditions = replace(checker.conditions, device="cpu", measuring=None, cache=None, repeat=1, standard="auto")
        return Definitions(Checker(conditions, replace(self.probe.registry, calls={})))

    def judge(self, judged: Judged) -> None:
        """An error that both frameworks show in float64, too, comes of their definitions."""
        checked: Checked = judged.checked
        if self.probe.settings.against_framework is not None:
            return
        sides = set(self.probe.sides_of(checked.case.dump.framework))
        if judged.verdict.verdict != "error" or len(sides) == 1 or checked.case.pair is not None:
            return
        found = self._definitions.differing(checked)
        if found:
            words = f"{DIFFER}: in float64 on the CPU, too, {found}"
            judged.verdict = replace(judged.verdict, verdict="skip", reason=words, kind=DIFFER, outputs=())


# Of how many errors of an API another framework is asked.
ASKED = 5


class SecondOpinion(Feature):
    """What another framework's kernel gives for a call whose error the CPU made. It changes no verdict."""

    def __init__(self, probe: Probe) -> None:
        super().__init__(probe)
        self._asked = Counter[str]()

    @cached_property
    def _checkers(self) -> dict[str, Checker]:
        return {}

    def judge(self, judged: Judged) -> None:
        checked = judged.checked
        if judged.verdict.verdict != "error" or checked.worst is None or checked.case.pair is not None:
            return
        module, api = asked_of(checked.case.dump.framework), checked.case.api
        self._asked[api] += 1
        if module and checked.worst.replay.source.name == "cpu" and self._asked[api] <= ASKED:
            words = opinion(self._by(module), module, checked)
            notes = (*judged.verdict.notes, *([words] if words else []))
            judged.verdict = replace(judged.verdict, notes=notes)

    def _by(self, module: str) -> Checker:
        if module not in self._checkers:
            checker = self.probe.quick_checker
            conditions = replace(checker.conditions, framework=module, measuring=None, cache=None, repeat=1)
            self._checkers[module] = Checker(conditions, self.probe.registry)
        return self._checkers[module]
