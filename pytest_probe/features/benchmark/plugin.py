"""--probe-benchmark: each case is compared with another run's result of the same case."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from pytest_probe.errors import SettingsError
from pytest_probe.export.three_party import MISSING, NOTHING, judge
from pytest_probe.model.result import PortableId, Result
from pytest_probe.plugin.feature import Feature, Summary
from pytest_probe.plugin.item_verdict import ItemVerdict
from pytest_probe.plugin.reporting import Reporting
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.plugin.xdist import is_worker
from pytest_probe.reports import results_file, terminal
from pytest_probe.reports.result_set import ResultSet, RunFolder
from pytest_probe.reports.results_file import Identity
from pytest_probe.standards.tools import COMPARES

OPTION = "--probe-benchmark"
# Cases of one run only that are listed.
_LISTED = 20


class AgainstBenchmark(Feature):
    traits = frozenset({"needs run"})
    request: Mapping[str, bool] = {"measured": True}

    def __init__(self, probe: ProcessSession) -> None:
        super().__init__(probe)
        self._seen: set[str] = set()

    @cached_property
    def other(self) -> ResultSet[Result]:
        assert self.probe.settings.benchmark is not None
        return open_benchmark(self.probe.settings.benchmark)

    def prepare(self) -> None:
        if not is_worker(self.probe.config):
            _ = self.other

    def judge(self, judged: ItemVerdict) -> None:
        judged.verdict = judge(judged.verdict, self.other.get(str(judged.identity)), judged.api)

    def begin(self, reporting: Reporting) -> None:
        self.check(reporting.run["identity"])

    def check(self, identity: Identity) -> None:
        """Is it of the same inputs, against the same references?"""
        advice = "the two are not of the same inputs and references; give a benchmark of the same"
        folder = str(self.probe.settings.benchmark)
        results_file.check(OPTION, folder, self.other.identity, identity, "benchmark", advice)

    def decides(self) -> str:
        by_ratios = self.probe.settings.standard in COMPARES
        return f"compared with {self.other.name}" + ("" if by_ratios else ", where an error is a warning")

    def add(self, result: Result) -> bool | None:
        self._seen.add(result.id)
        if result.verdict == "skip" or not result.outputs:
            return None
        other = self.other.get(result.id)
        timed = other is not None and other.time is not None and result.time is not None
        return timed or not any(note.startswith((MISSING, NOTHING)) for note in result.notes)

    @property
    def _alone(self) -> list[str]:
        return sorted(id for id in self._seen if self.other.id_of(id) is None)

    def end(self, reporting: Reporting) -> None:
        if self._alone and self.probe.settings.strict:
            cases = terminal.count(len(self._alone), "case")
            folder = self.probe.settings.benchmark
            reporting.trouble(f"{folder} does not have {cases}, which --probe-strict does not allow")

    def summary(self, width: int) -> Summary:
        """The cases that only one of both runs has."""
        met = {PortableId.parse(id).in_any_dtype for id in self._seen}
        own = [] if self.probe.has("part") else [result for result in self.other.cases.values() if result.api]
        there = sorted(result.id for result in own if result.portable_id.in_any_dtype not in met)
        lines = []
        for where, names in (("this run", self._alone), ("the benchmark", there)):
            if names:
                lines += [f"probe: only in {where}: {terminal.count(len(names), 'case')}"]
                lines += [f"  {name}" for name in names[:_LISTED]]
                lines += [f"  and {len(names) - _LISTED:,} more"] if len(names) > _LISTED else []
        return Summary(behind=lines)


def open_benchmark(folder: Path) -> ResultSet[Result]:
    """Raises SettingsError where the folder holds no run."""
    give = "give a folder of --probe-out"
    if any(next(folder.glob(name), None) for name in ("output", "*/output")):
        give += ", or add --probe-outputs=DIR, whose outputs are then compared with those in it"
    words = f"{give}; {{error.strerror}}: {{error.filename}}", f"{give}; {{error}}"
    found = RunFolder.read(OPTION, folder, *words)
    if early := found.early_end():
        wanted = f"{early}; go on with --probe-resume, or give the folder of a whole run"
        raise SettingsError(OPTION, str(folder), wanted)
    cases = {result.id: result for result in found.results(*words)}
    return ResultSet("benchmark", folder.name, cases, found.run.identity)
