"""--probe-benchmark: each case is compared with another run's result of the same case."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from pytest_probe.features.benchmark.benchmark import MISSING, NOTHING, Benchmark
from pytest_probe.model.result import OtherRun, PortableId, Result
from pytest_probe.plugin.feature import Feature, Summary
from pytest_probe.plugin.judged import Judged
from pytest_probe.plugin.reporting import Reporting
from pytest_probe.plugin.session import Probe
from pytest_probe.plugin.xdist import is_worker
from pytest_probe.reports import terminal
from pytest_probe.reports.results_file import Identity
from pytest_probe.standards.tools import COMPARES


class AgainstBenchmark(Feature):
    traits = frozenset({"needs run"})
    conditions: Mapping[str, bool] = {"measured": True}

    def __init__(self, probe: Probe) -> None:
        super().__init__(probe)
        self._seen: set[PortableId] = set()

    @cached_property
    def _benchmark(self) -> Benchmark:
        assert self.probe.settings.benchmark is not None
        return Benchmark.read(self.probe.settings.benchmark)

    @cached_property
    def other(self) -> OtherRun:
        cases = {result.id: result for result in self._benchmark.results.values()}
        return OtherRun("benchmark", self._benchmark.folder.name, cases)

    def prepare(self) -> None:
        if not is_worker(self.probe.config):
            _ = self._benchmark

    def judge(self, judged: Judged) -> None:
        judged.verdict = self._benchmark.judge(judged.verdict, judged.identity, judged.api)

    def begin(self, reporting: Reporting) -> None:
        self.check(reporting.run["identity"])

    def check(self, identity: Identity) -> None:
        self._benchmark.check(identity)

    def decides(self) -> str:
        by_ratios = self.probe.settings.standard in COMPARES
        return f"beside {self._benchmark.folder.name}" + ("" if by_ratios else ", where an error is a warning")

    def add(self, result: Result) -> bool | None:
        self._seen.add(result.portable_id)
        if result.verdict == "skip" or not result.outputs:
            return None
        other = self._benchmark.of(result.portable_id)
        timed = other is not None and other.time is not None and result.time is not None
        return timed or not any(note.startswith((MISSING, NOTHING)) for note in result.notes)

    @property
    def _alone(self) -> list[str]:
        return sorted(str(each) for each in self._seen if self._benchmark.of(each) is None)

    def end(self, reporting: Reporting) -> None:
        if self._alone and self.probe.settings.strict:
            cases = terminal.count(len(self._alone), "case")
            reporting.trouble(f"{self._benchmark.folder} does not have {cases}, which --probe-strict does not allow")

    def summary(self, width: int) -> Summary:
        """The cases that only one of both runs has."""
        there = [] if self.probe.has("part") else self._benchmark.only(self._seen)
        return Summary(behind=[*terminal.one_sided(self._alone, there)])
