"""--probe-baseline: each case is compared with what a file says of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from pytest_probe.check import Checker
from pytest_probe.errors import RecordError
from pytest_probe.features.gate.baseline import baseline_entry, signature
from pytest_probe.features.gate.gate import Gate
from pytest_probe.features.gate.report import SHORT, heading, table
from pytest_probe.features.gate.run import GateRun, gate_in_worker
from pytest_probe.model.case import Case
from pytest_probe.model.result import OtherRun, Result
from pytest_probe.model.verdict import SEVERITY, Verdict
from pytest_probe.plugin.feature import Feature, Summary, Trait
from pytest_probe.plugin.judged import Judged, Regression
from pytest_probe.plugin.reporting import Reporting
from pytest_probe.plugin.session import Probe
from pytest_probe.plugin.xdist import is_controller

# The key of a worker's input.
_HANDED = "probe_gate"


class AgainstBaseline(Feature):
    conditions: Mapping[str, bool] = {"baseline": True}

    def __init__(self, probe: Probe) -> None:
        super().__init__(probe)
        self.written = ("baseline",) if probe.settings.update else ()
        self._run: GateRun | None = None
        self._handed: Gate | None = None
        self._checkers: dict[int, Checker] = {}
        self._signed: tuple[object, str] = (None, "")

    @property
    def traits(self) -> Sequence[Trait]:
        """The devices decide which bits can be compared."""
        needs: Sequence[Trait] = ("needs run", "needs devices")
        return (*needs, "draws anew") if self.probe.settings.update else needs

    @property
    def _gate(self) -> Gate | None:
        """In a worker the one that it was handed; None before that, and where nothing reports."""
        if self._run is not None:
            return self._run.gate
        given: dict[str, Any] = getattr(self.probe.config, "workerinput", {})
        if self._handed is None and _HANDED in given:
            self._handed = gate_in_worker(self.probe.settings, given[_HANDED])
        return self._handed

    @property
    def other(self) -> OtherRun | None:
        settings, gate = self.probe.settings, self._gate
        if gate is None or gate.baseline is None or settings.baseline is None:
            return None
        cases, same_device = gate.baseline.cases, gate.comparable.same_device
        return OtherRun("baseline", settings.baseline.name, cases, same_device, limits=not settings.update)

    def judge(self, judged: Judged) -> None:
        """Compare it. Where an update measures the spread, the verdict is the worst of all seeds."""
        if self._gate is None:
            return
        case, verdict = judged.checked.case, judged.verdict
        signed = self._signature(case)
        others = []
        # What a test made for a check is not made anew.
        if self.probe.settings.update and case.pair is None and verdict.verdict != "skip":
            for seed, other in self._with_other_seeds(case):
                others.append(other)
                if SEVERITY[other.verdict] > SEVERITY[judged.verdict.verdict]:
                    note = f"found with other inputs: --probe-seed={seed} --probe-repeat=1"
                    judged.verdict = replace(other, notes=(*other.notes, note))
        line = replace(verdict, verdict=judged.verdict.verdict)
        judgement = self._gate.judge(baseline_entry(str(judged.identity), signed, line, others))
        compared = judged.compared = judgement.compared
        judged.known = judgement.known
        if judgement.fails:
            reason = f"{SHORT[compared.change]}: {compared.reason}"
            judged.regression = Regression(reason, heading(judgement), tuple(table(judgement)))

    def _with_other_seeds(self, case: Case) -> Iterator[tuple[int, Verdict]]:
        """The verdicts on a case by seed, on the inputs of the seeds behind the run's: how far do metrics spread?"""
        probe = self.probe
        for seed in range(probe.settings.seed + 1, probe.settings.seed + probe.settings.repeat):
            if seed not in self._checkers:
                self._checkers[seed] = probe.checker.changed(seed=seed)
            yield seed, self._checkers[seed].run(case).verdict

    def _signature(self, case: Case) -> str:
        """What the record is called with; the backward's is that of its forward, which ran before."""
        key = case.dump.path, case.record.name
        if case.pair is not None or self._signed[0] != key:
            try:
                self._signed = key, signature(case)
            except RecordError:  # the verdict says what is wrong
                self._signed = key, ""
        return self._signed[1]

    def for_workers(self) -> dict[str, Any]:
        return {} if self._run is None else {_HANDED: self._run.carried()}

    def begin(self, reporting: Reporting) -> None:
        config = self.probe.config
        workers = len(config.getoption("tx", None) or ()) if is_controller(config) else 1
        self._run = GateRun(self.probe.settings, reporting.run, reporting.dumps, workers)

    def add(self, result: Result) -> None:
        if self._run is not None:
            self._run.add(result)

    def summary(self, width: int) -> Summary:
        return Summary() if self._run is None else Summary(self._run.lines(width), self._run.environment())

    def end(self, reporting: Reporting) -> None:
        for line in () if self._run is None else self._run.close():
            reporting.trouble(line)
