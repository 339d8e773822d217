"""Collectives in a run: with --probe-device=recorded what the ranks of a dump stored is judged, with --probe-ranks they
are made again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from itertools import chain, islice
from pathlib import Path

import numpy as np

from pytest_probe import frameworks
from pytest_probe.check import Case, CaseOutcome, Question
from pytest_probe.errors import DumpError, RecordError, SettingsError, Unsupported
from pytest_probe.features.collectives import replicas
from pytest_probe.features.collectives.judging import Earlier, flat, skipped, verdicts
from pytest_probe.features.collectives.matching import ALONE, Match, Part, Step, calls_of
from pytest_probe.features.collectives.processes import LocalRanks, Processes
from pytest_probe.features.collectives.replay import Replaying
from pytest_probe.inputs import StoredTensors
from pytest_probe.model.collective import NAMESPACES, Piece
from pytest_probe.model.dump import Dump
from pytest_probe.model.run import RECORDED
from pytest_probe.model.verdict import SEVERITY, Verdict
from pytest_probe.numerics.dtypes import AnyArray, numpy_dtype
from pytest_probe.options import NAMED
from pytest_probe.plugin.collectors import ProbeFile
from pytest_probe.plugin.feature import Feature
from pytest_probe.plugin.items import NoticeItem
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.records import ranks_beside, run_of, step_and_rank, step_number
from pytest_probe.reports.terminal import count
from pytest_probe.system.machine import available_memory, usable_cores

# torch.distributed has it wherever it is built.
# What a process of a rank takes that has the framework, and from how many a core on it says so.
_RANK_BYTES, _CROWD = 150_000_000, 16
# How many calls back a stale result is looked for.
_EARLIER = 8


class ReplicasItem(NoticeItem):
    """What ranks of a run hold alike, over all steps of its dump."""

    feature: Collectives

    def judge(self) -> Verdict:
        steps = self.feature.steps_of(self.dump_path)
        return replicas.verdict(steps, self.feature.values)


def _kinds(part: Part) -> list[tuple[str, int]]:
    """The dtype and the number of elements of each tensor that it received."""
    return [(piece.spec.dtype, piece.spec.size) for piece in part.collective.received]


class Collectives(Feature, Question):
    """A case is one rank's part in a collective, which is judged with those of all ranks."""

    def __init__(self, probe: ProcessSession) -> None:
        super().__init__(probe)
        ranks = probe.settings.ranks
        self.device = RECORDED if ranks is None else f"{ranks[0]} ranks of {ranks[1]}"
        # A collective is judged once, for all of its ranks.
        self._found: dict[tuple[int, int], Mapping[int, Verdict]] = {}
        self._processes: Processes | None = None
        self._steps: dict[str, Step] = {}

    def prepare(self) -> None:
        (ranks, _), most = self.probe.settings.ranks or (0, ""), available_memory() // _RANK_BYTES
        if ranks > most and not self.probe.machines:
            wanted = (
                f"each is a process of {_RANK_BYTES // 10**6} MB, and this machine has memory for {most}; give fewer"
            )
            raise SettingsError(NAMED["ranks"].flag, str(ranks), wanted)

    def _step_of(self, dump: Dump) -> Step:
        """The dumps of all ranks of its step, given or not."""
        common, _ = step_and_rank(dump.path) or (str(dump.path), 0)
        if common not in self._steps:
            given = ((step_and_rank(path), path) for path in self.probe.dumps.paths)
            others = {each[1]: path for each, path in given if each is not None and each[0] == common}
            self._steps[common] = Step(dict(self._readable({**others, **ranks_beside(dump.path)})))
        return self._steps[common]

    def steps_of(self, path: Path) -> Mapping[int, Mapping[int, Dump]]:
        """The dumps of a run by step and rank."""
        found: dict[int, dict[int, Path]] = {}
        for each in self.probe.dumps.paths:
            rank = step_and_rank(each)
            if rank is not None and run_of(each) == run_of(path):
                found.setdefault(step_number(each), {})[rank[1]] = each
        return {step: dict(self._readable(paths)) for step, paths in found.items()}

    def _readable(self, paths: Mapping[int, Path]) -> Iterator[tuple[int, Dump]]:
        for rank, path in paths.items():
            # What is wrong with one that was given its own item says.
            with suppress(DumpError):
                yield rank, self.probe.dumps.read(path)

    def items(self, parent: ProbeFile, dump: Dump) -> Iterator[NoticeItem] | None:
        held = []
        # The first dump of a run of several ranks whose modules were recorded has an item for all of them.
        if dump.compare_only and step_and_rank(dump.path) is not None:
            run = run_of(dump.path)
            alike = [path for path in self.probe.dumps.paths if run_of(path) == run]
            if alike[:1] == [dump.path] and len({step_and_rank(path) for path in alike}) > 1:
                held.append(ReplicasItem.from_parent(parent, name="(replicas)"))
                held[0].feature = self
        if not held and next(calls_of(dump), None) is None:
            return None
        apis = {f"{record.namespace}.{record.api}" for record in dump.records}
        own = {api for api in apis if api.partition(".")[0] in NAMESPACES}
        return chain(held, parent.cases(dump, apis=apis - own), parent.cases(dump, self, own))

    def run(self, case: Case) -> CaseOutcome:
        """The verdict on one rank's part: the worst where its record holds several."""
        step = self._step_of(case.dump)
        try:
            parts = step.parts(case.dump, case.record)
        except (RecordError, Unsupported) as error:
            return CaseOutcome(case, skipped(error))
        nothing = Verdict("skip", "", "it holds no message", "nothing received")
        found = (self._of_part(step, part) for part in parts)
        return CaseOutcome(case, max(found, key=lambda each: SEVERITY[each.verdict], default=nothing))

    def _of_part(self, step: Step, part: Part) -> Verdict:
        rank = part.collective.rank
        assert rank is not None
        try:
            match = step.match(part)
        except Unsupported as error:
            if self._replaying is None or error.kind != ALONE:
                return skipped(error)
            return self._replaying.verdicts(part, None)[rank]
        first = next(iter(match.parts.values()))
        key = (id(first.record), first.number)
        if key not in self._found:
            replaying = self._replaying
            if replaying is None:

                def load(rank: int, piece: Piece) -> AnyArray:
                    return self.values(match.parts[rank].dump, piece)

                self._found[key] = verdicts(match, load, self._earlier(step, match))
            else:
                self._found[key] = replaying.verdicts(part, match)
        return self._found[key][rank]

    @cached_property
    def _replaying(self) -> Replaying | None:
        """What makes calls again; None where those of the dump are judged."""
        settings = self.probe.settings
        if settings.ranks is None:
            return None
        program = frameworks.collectives(frameworks.DEFAULT)
        assert program is not None
        pool = LocalRanks() if self.probe.machines is None else self.probe.machines.rank_pool
        self._processes = Processes(pool, *settings.ranks, program.PROGRAM, settings.timeout)
        return Replaying(self._processes, self.values, settings.inputs, settings.seed)

    def header(self) -> Iterable[str]:
        if self.probe.settings.ranks is not None:
            crowd = self.probe.settings.ranks[0] > _CROWD * usable_cores()
            where = f"; they share {count(usable_cores(), 'core')} and may need minutes" if crowd else ""
            where = ", on the cluster" if self.probe.machines else where
            yield f"probe: collectives are made again by {self.device}{where}"

    def pytest_unconfigure(self) -> None:
        if self._processes is not None:
            self._processes.close()

    def _earlier(self, step: Step, match: Match) -> Earlier:
        def found(rank: int) -> Iterator[tuple[str, AnyArray]]:
            mine = match.parts[rank]
            before, own = self.steps_of(mine.dump.path), step_number(mine.dump.path)
            numbers = sorted((number for number in before if number < own), reverse=True)
            steps = (step, *(self._step_of(next(iter(before[number].values()))) for number in numbers))
            alike = (part for each in steps for part in each.earlier(mine) if _kinds(part) == _kinds(mine))
            for part in islice(alike, _EARLIER):
                # What cannot be read its own item says, and a cause is worth no verdict.
                with suppress(RecordError, MemoryError):
                    pieces = part.collective.received
                    name = part.record.name
                    if part.dump is not mine.dump:
                        name = f"{name} of step {step_number(part.dump.path)}"
                    yield name, flat([self.values(part.dump, piece) for piece in pieces])

        return found

    def values(self, dump: Dump, piece: Piece) -> AnyArray:
        """Those of a tensor of a dump. Raises RecordError."""
        if not piece.spec.size:
            return np.empty(piece.spec.shape, numpy_dtype(piece.spec.dtype))
        return StoredTensors.of(dump).array(piece.spec, piece.entry, piece.field)
