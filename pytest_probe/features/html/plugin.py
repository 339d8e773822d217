"""--probe-html: a page about the run; and what plots and tables of a case draw, which --probe-out keeps for a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_probe.features.html.details import ShownInDetail, details_of
from pytest_probe.model.result import Result
from pytest_probe.plugin.feature import Feature, Trait
from pytest_probe.plugin.judged import Judged
from pytest_probe.plugin.reporting import Reporting
from pytest_probe.plugin.session import Probe

if TYPE_CHECKING:
    from pytest_probe.check.digits import Digits
    from pytest_probe.features.html.collected import Collected
    from pytest_probe.features.html.other_runs import Comparison


class Html(Feature):
    def __init__(self, probe: Probe) -> None:
        super().__init__(probe)
        self._shown = ShownInDetail()
        self._collected: Collected | None = None
        self._comparison: Comparison | None = None

    @property
    def traits(self) -> Sequence[Trait]:
        return ("plots",) if self.probe.settings.html is None else ("plots", "needs run")

    def judge(self, judged: Judged) -> None:
        if not self._shown.takes(judged.verdict):
            return
        digits: Sequence[Digits] = ()
        # They take a run of the reference, which a page is worth, and not a folder of results.
        if self.probe.settings.html is not None:
            from pytest_probe.check.digits import digits_of

            digits = judged.digits or digits_of(judged.checked, self.probe.checker)
        judged.details = details_of(judged.checked, judged.verdict, judged.command(), digits)

    def begin(self, reporting: Reporting) -> None:
        if self.probe.settings.html is None:
            return
        from pytest_probe.features.html.collected import Collected
        from pytest_probe.features.html.other_runs import Comparison, OtherCase, OtherRun

        self._collected = Collected()
        for other in self.probe.others[:1]:
            cases = {id: OtherCase.of(case) for id, case in other.cases.items()}
            self._comparison = Comparison(OtherRun(other.name, other.kind, cases))

    def add(self, result: Result) -> None:
        if self._collected is None:
            return
        row = self._collected.add(result)
        if self._comparison is not None:
            self._comparison.add(row, result)

    def close(self, reporting: Reporting) -> None:
        path, collected = self.probe.settings.html, self._collected
        if path is None or collected is None:
            return
        from pytest_probe.features.html.other_runs import sparklines
        from pytest_probe.features.html.page import Page
        from pytest_probe.features.html.run_folder import RunFacts

        lines = sparklines(self.probe.settings.history, collected.ids)
        try:
            Page(RunFacts.of(reporting.run), collected, self._comparison, lines).write(path)
        except OSError as error:
            reporting.trouble(f"the page {path} cannot be written ({error.strerror})")
