"""--probe-framework and --probe-reference-framework: calls of records by another framework."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from msgspec.structs import replace

from pytest_probe.check import Checked, Checker
from pytest_probe.features.other_framework.definitions import DIFFER, Definitions
from pytest_probe.frameworks.mapping.table import entries_of
from pytest_probe.plugin.feature import Feature
from pytest_probe.plugin.judged import Judged


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
