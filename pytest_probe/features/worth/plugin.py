"""--probe-worth: each case that passed is spoiled and judged again."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_probe.model.verdict import WEAK, WORTH
from pytest_probe.plugin.feature import Feature
from pytest_probe.plugin.judged import Judged
from pytest_probe.plugin.reporting import Reporting
from pytest_probe.reports.terminal import count

if TYPE_CHECKING:
    from pytest_probe.features.worth.case import Spoiling

# APIs that are named.
_APIS = 5


class WorthOfPasses(Feature):
    @cached_property
    def _spoiling(self) -> Spoiling:
        from pytest_probe.features.worth.case import Spoiling

        return Spoiling(self.probe.checker)

    def judge(self, judged: Judged) -> None:
        answer = self._spoiling.of(judged.checked) if self.probe.settings.worth else None
        if answer is not None:
            judged.verdict = replace(judged.verdict, answers=(*judged.verdict.answers, answer))

    def end(self, reporting: Reporting) -> None:
        """Fail a run that proves less than so many percent, and name the APIs that need other records."""
        cases, weak, least = Counter[str](), Counter[str](), int(self.probe.settings.worth or 0)
        for (question, api, _, direction), row in reporting.answers.rows.items():
            if question == WORTH:
                cases[f"{api} {direction}".rstrip()] += row.cases
                weak[f"{api} {direction}".rstrip()] += row.outcomes[WEAK]
        share = 100 * (cases.total() - weak.total()) / max(cases.total(), 1)
        if not cases or share >= least:
            return
        named = [f"{api} ({each:,} of {count(cases[api], 'case')})" for api, each in weak.most_common() if each]
        more = f" and {len(named) - _APIS:,} more APIs" if len(named) > _APIS else ""
        reporting.trouble(
            f"worth: {share:.3g} % of the cases prove something, --probe-worth asks for {least} %; "
            f"other records are needed of {', '.join(named[:_APIS])}{more}"
        )
