"""--probe-relations: each case is asked more than its standard asks."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from msgspec.structs import replace

from pytest_probe.check import CaseOutcome
from pytest_probe.features.relations.checks import Relations
from pytest_probe.features.relations.table import checked
from pytest_probe.plugin.feature import Feature
from pytest_probe.plugin.item_verdict import ItemVerdict


class AskRelations(Feature):
    def prepare(self) -> None:
        """Raises SettingsError for a row of the project's that cannot be read."""
        checked(self.probe.registry.relations)

    @cached_property
    def _relations(self) -> Relations:
        return Relations(self.probe.checker, self.probe.settings.relations, self.probe.at_risk)

    def header(self) -> Iterable[str]:
        asked = self.probe.settings.relations
        yield f"probe: relations {', '.join(asked)}"
        if "guard" in asked and not getattr(self.probe.config.option, "tx", None):
            yield "probe: guard looks for reads beyond a page only where the process may die: add --probe-isolate or -n"

    def judge_drawn_call(self, found: CaseOutcome) -> CaseOutcome:
        return self._relations.of(found)

    def judge(self, judged: ItemVerdict) -> None:
        judged.checked = self.judge_drawn_call(replace(judged.checked, verdict=judged.verdict))
        judged.verdict = judged.checked.verdict
