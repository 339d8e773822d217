"""--probe-html: a page about the run; and what plots and tables of a case draw, which --probe-out keeps for a page.

Each process chooses the cases that are shown in detail: errors, warnings and its 200 worst others so far, of which
about 200 ln(N / 200) turn out not to be among the worst.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappush, heapreplace
from typing import TYPE_CHECKING

from pytest_probe.model.details import Details, limit_share
from pytest_probe.model.result import Result
from pytest_probe.model.verdict import Verdict
from pytest_probe.plugin.feature import Feature, Trait
from pytest_probe.plugin.judged import Judged
from pytest_probe.plugin.reporting import Reporting
from pytest_probe.plugin.session import Probe
from pytest_probe.reports.result_set import ResultSet, RunFile
from pytest_probe.system.text import printable_line

if TYPE_CHECKING:
    from pytest_probe.check import Checked
    from pytest_probe.check.digits import Digits
    from pytest_probe.features.html.collected import Collected
    from pytest_probe.features.html.other_runs import Comparison

# How many passing cases, the nearest to their limits, are shown in detail.
MAX_DETAILED_PASSES = 200


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
        from pytest_probe.features.html.other_runs import Comparison, OtherCase

        self._collected = Collected()
        for other in self.probe.others[:1]:
            cases = {id: OtherCase.of(case) for id, case in other.cases.items()}
            self._comparison = Comparison(ResultSet(other.kind, other.name, cases))

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

        lines = sparklines(self.probe.settings.history, collected.ids)
        try:
            Page(RunFile.of(reporting.run), collected, self._comparison, lines).write(path)
        except OSError as error:
            reporting.trouble(f"the page {path} cannot be written ({error.strerror})")


class ShownInDetail:
    """Chooses while the run goes on: errors, warnings, and other cases that are among the worst so far."""

    def __init__(self) -> None:
        self._worst: list[float] = []

    def takes(self, verdict: Verdict) -> bool:
        """Is a case with this verdict shown in detail?"""
        if verdict.verdict != "pass":
            return verdict.verdict != "skip"
        share = max((limit_share(output.metrics) or 0.0 for output in verdict.outputs), default=0.0)
        if len(self._worst) < MAX_DETAILED_PASSES:
            heappush(self._worst, share)
            return True
        if share <= self._worst[0]:
            return False
        heapreplace(self._worst, share)
        return True


def details_of(checked: Checked, verdict: Verdict, command: str, digits: Iterable[Digits] = ()) -> Details:
    """What is shown of a case: its verdict may have been changed since it was checked."""
    from pytest_probe.features.html.plots import arguments_of, operands_of, plots_of
    from pytest_probe.records import user_frame

    case = checked.case
    stack = case.dump.stack(f"{case.record.name}.{case.direction}")
    rows = verdict.arguments or arguments_of(checked)
    right = {printable_line(each.output): str(each) for each in digits}
    return Details.of(command, rows, stack, user_frame(stack), plots_of(checked, verdict), right, operands_of(checked))
