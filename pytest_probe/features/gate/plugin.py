"""--probe-baseline: each case is compared with what a file says of it.

The process that reports reads the file once and gives its content to the workers, so a file that changes during the run
changes no verdict. Only it writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from pytest_probe.check import Checker
from pytest_probe.errors import RecordError, SettingsError
from pytest_probe.features.gate.baseline import (
    OPTION,
    UPDATE,
    Baseline,
    BaselineWriteError,
    Comparable,
    Header,
    baseline_entry,
    changes,
    check,
    check_writable,
    comparable,
    differences,
    signature,
    write,
)
from pytest_probe.features.gate.gate import SHORT, Gate, GateTally, table
from pytest_probe.model.baseline import WORSE, Compared, KeptCase
from pytest_probe.model.case import Case
from pytest_probe.model.result import PortableId, Result
from pytest_probe.model.verdict import SEVERITY, Verdict
from pytest_probe.plugin.feature import Feature, Summary, Trait
from pytest_probe.plugin.item_verdict import ItemVerdict, Regression
from pytest_probe.plugin.reporting import Reporting
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.plugin.xdist import is_controller
from pytest_probe.reports.result_set import ResultSet
from pytest_probe.reports.results_file import refused
from pytest_probe.reports.terminal import count

# The key of a worker's input.
_HANDED = "probe_gate"


class AgainstBaseline(Feature):
    request: Mapping[str, bool] = {"baseline": True}

    def __init__(self, probe: ProcessSession) -> None:
        super().__init__(probe)
        assert probe.settings.baseline is not None
        self._path = probe.settings.baseline
        self.written = ("baseline",) if probe.settings.update else ()
        self._handed: Gate | None = None
        self._checkers: dict[int, Checker] = {}
        self._signed: tuple[object, str] = (None, "")
        # In the process that reports.
        self._header: Header | None = None
        self._tally = GateTally()
        self._found: dict[str, Compared] = {}
        self._ran: set[str] = set()
        self._vanished: list[str] = []
        self._updated = ""

    @property
    def traits(self) -> Sequence[Trait]:
        """The devices decide which bits can be compared."""
        needs: Sequence[Trait] = ("needs run", "needs devices")
        return (*needs, "draws anew") if self.probe.settings.update else needs

    @property
    def _gate(self) -> Gate | None:
        """In a worker the one that it was handed; None before that, and where nothing reports."""
        given = getattr(self.probe.config, "workerinput", {}) if self._handed is None else {}
        if _HANDED in given:
            self._handed = msgspec.msgpack.decode(given[_HANDED], type=Gate)
        return self._handed

    def _gate_of(self, before: Baseline | None, found: Comparable) -> Gate:
        settings = self.probe.settings
        return Gate(before, found, settings.update, settings.strict, settings.judges)

    @property
    def other(self) -> ResultSet[KeptCase] | None:
        gate = self._gate
        if gate is None or gate.baseline is None:
            return None
        cases, identity = gate.baseline.cases, gate.baseline.header.identity
        same_device, limits = gate.comparable.same_device, not self.probe.settings.update
        return ResultSet("baseline", self._path.name, cases, identity, same_device, limits)

    def judge(self, judged: ItemVerdict) -> None:
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
            judged.regression = Regression(reason, WORSE[compared.change], tuple(table(judgement)))

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

    # In the process that reports.

    def begin(self, reporting: Reporting) -> None:
        config, run, path, settings = self.probe.config, reporting.run, self._path, self.probe.settings
        workers = len(config.getoption("tx", None) or ()) if is_controller(config) else 1
        header = self._header = Header.of(run, workers)
        if settings.update:
            with refused(OPTION, path, f"{{error.strerror}}, and {UPDATE} writes it"):
                check_writable(path)
        if settings.update and (not path.exists() or (path.is_file() and not path.stat().st_size)):
            # The update will make it.
            self._handed = self._gate_of(None, Comparable())
            return
        before = Baseline.read(path)
        check(path, before.header, run["identity"])
        limits_times = settings.times and settings.time_limit is not None and settings.benchmark is None
        if limits_times and not settings.update and not any(case.time is not None for case in before.cases.values()):
            wanted = f"it has no times for --probe-time-limit; a run with --probe-mode=acc,time and {UPDATE} adds them"
            raise SettingsError(OPTION, str(path), wanted)
        # Cases whose record is missing from its dump. Of a damaged dump nobody knows.
        names = {
            label: {f"{record.name}.{direction}" for record in dump.records for direction in record.directions}
            for label, dump in reporting.dumps
            if not dump.damage
        }
        ids = ((id, PortableId.parse(id)) for id in before.cases)
        self._vanished = sorted(id for id, each in ids if each.entry not in names.get(each.label, (each.entry,)))
        self._handed = self._gate_of(before, comparable(before.header, header))

    @property
    def _before(self) -> Baseline | None:
        return None if self._handed is None else self._handed.baseline

    def for_workers(self) -> dict[str, Any]:
        """The gate: the file may be another one when the worker starts."""
        return {} if self._handed is None else {_HANDED: msgspec.msgpack.encode(self._handed)}

    def add(self, result: Result) -> None:
        """Count a result; an update keeps what it holds."""
        self._tally.add(result)
        if result.gate is not None:
            self._ran.add(result.id)
            if self.probe.settings.update:
                self._found[result.id] = result.gate

    def summary(self, width: int) -> Summary:
        """Counts first; and loudly, what differs between the environments."""
        before, updated = self._before, [self._updated] if self._updated else []
        if before is None or self._header is None:
            return Summary(updated)
        tally = self._tally
        counts = f"gate: {tally.counts(len(self._vanished))} ({self._path.name})"
        bits = "bits: not compared, since the device, its threads or the inputs are others"
        if tally.bits:
            bits = f"bits: {tally.same_bits:,} of {count(tally.bits, 'output')} as before"
        compared = tally.changes.total() - tally.changes["new"] - tally.changes["changed"]
        shown = [bits] if compared and self.probe.settings.judges else []
        others = ", ".join(differences(before.header, self._header))
        alarm = f"ANOTHER ENVIRONMENT than the baseline's: {others}" if others else ""
        return Summary([counts, *shown, *updated, *tally.lines(self._vanished, width)], alarm)

    def end(self, reporting: Reporting) -> None:
        if self._header is not None:
            for line in self._write(self._header) if self.probe.settings.update else self._failures():
                reporting.trouble(line)

    def _failures(self) -> Iterator[str]:
        """What fails the run besides its items."""
        strict, before = self.probe.settings.strict, self._before
        if strict and self._vanished:
            yield f"{count(len(self._vanished), 'case')} of the baseline vanished, which --probe-strict does not allow"
        if strict and self._tally.changes["gone"]:
            gone = count(self._tally.changes["gone"], "case")
            yield f"{gone} of the baseline cannot be judged any more, which --probe-strict does not allow"
        if before is None or not self._ran:
            return
        # Cases that the baseline has; changed ones are not compared.
        if len(self._ran & before.cases.keys()) != self._tally.changes["changed"]:
            return
        labels = {PortableId.parse(id).label for id in before.cases}
        # Has it no case of these dumps at all? One new case that was selected alone is no mistake.
        other_dumps = bool(labels) and labels.isdisjoint(PortableId.parse(id).label for id in self._ran)
        if other_dumps or not self._left():
            found = f"it is of {', '.join(sorted(labels)[:3])}" if labels else "it has no case"
            yield (
                f"{self._path} has none of this run's cases as they are now, and nothing was compared: {found}; give "
                f"the --probe-dump that it was written with, or {UPDATE}"
            )

    def _left(self) -> int:
        """How many of the baseline's cases did not run, though they may."""
        before = () if self._before is None else self._before.cases
        return sum(id not in self._ran for id in before) - len(self._vanished)

    def _write(self, header: Header) -> Iterator[str]:
        """Write the baseline; what is wrong where that fails."""
        whole = not self._left()
        # A run that leaves cases out leaves their lines alone.
        vanished = frozenset(self._vanished if whole else ())
        if not self._found and not vanished:
            yield f"{self._path} was not written: no case ran"
            return
        changed = changes(self._before, header, self._found, vanished, strict=self.probe.settings.strict)
        try:
            done = write(self._path, header, changed, whole=whole)
        except BaselineWriteError as error:
            yield f"{self._path} was not written: {error}"
            return
        counted = (("added", done.added), ("rewritten", done.rewritten), ("removed", done.removed))
        parts = [f"{number:,} {word}" for word, number in counted if number]
        self._updated = f"baseline {self._path.name}: {count(done.cases, 'case')}, {', '.join(parts) or 'none moved'}"
