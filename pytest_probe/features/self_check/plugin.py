"""--probe-standard=self: each case is asked what needs no reference; and where auto has none, that it can be asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_probe.check import Case, Question
from pytest_probe.errors import NoReference
from pytest_probe.model.dump import Dump
from pytest_probe.model.verdict import PASS_SELF
from pytest_probe.options import QUESTIONS, SELF
from pytest_probe.plugin.collectors import ProbeFile
from pytest_probe.plugin.feature import Feature, Summary
from pytest_probe.plugin.item_verdict import ItemVerdict
from pytest_probe.plugin.items import ProbeItem
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.reports.terminal import wrap

if TYPE_CHECKING:
    from pytest_probe.check import CaseOutcome
    from pytest_probe.features.self_check.checks import SelfChecks
    from pytest_probe.plugin.reporting import Reporting

_STANDARDS: Mapping[str, str] = {SELF: "no reference: the device is asked by itself, and compared with the CPU"}
# What the summary says once of passes.
BLIND = "pass (self): a fault that all dtypes' kernels of the device share is not seen"


class SelfCheck(Feature, Question):
    """In a run by this standard the items; in one by auto what skips without a reference say."""

    judges = ("skip",)

    def __init__(self, probe: ProcessSession) -> None:
        super().__init__(probe)
        self._decides = probe.settings.standard == SELF
        self._asked: Sequence[str] = probe.settings.self_asked or QUESTIONS
        if self._decides:
            self.standards = _STANDARDS
        self._passes = 0
        self._known: dict[tuple[str, ...], list[str]] = {}

    @property
    def request(self) -> Mapping[str, str]:
        """The rules that judge the device compared with its own kernels."""
        return {"standard": "auto"} if self._decides else {}

    @cached_property
    def checks(self) -> SelfChecks:
        from pytest_probe.features.self_check.checks import SelfChecks

        if self._decides:
            return SelfChecks(self.probe.checker, self._asked)
        quick = self.probe.quick_checker.changed(measuring=None, cache=None, repeat=1)
        return SelfChecks(quick, QUESTIONS)

    def header(self) -> Iterable[str]:
        if self._decides:
            yield f"probe: questions {', '.join(self._asked)}"

    def items(self, parent: ProbeFile, dump: Dump) -> Iterator[ProbeItem] | None:
        return parent.cases(dump, self) if self._decides else None

    def run(self, case: Case) -> CaseOutcome:
        return self.checks.of(case)

    def judge(self, judged: ItemVerdict) -> None:
        verdict, case = judged.verdict, judged.checked.case
        if self._decides or verdict.kind != NoReference.kind:
            return
        if self.probe.settings.judges_stored or case.pair is not None or any(each.pair for each in verdict.answers):
            return
        # Calls of one API are much alike, and asking makes some of them.
        key = case.api, case.direction, verdict.dtype or case.dtype or ""
        if key not in self._known:
            self._known[key] = self.checks.asks(case)
        if asks := ", ".join(self._known[key]):
            words = f"{verdict.reason}; --probe-standard={SELF} can ask: {asks}"
            judged.verdict = replace(verdict, reason=words)

    def end(self, reporting: Reporting) -> None:
        self._passes = reporting.tally.verdicts[PASS_SELF]

    def summary(self, width: int) -> Summary:
        return Summary([*wrap(BLIND, width=width)] if self._passes else [])
