"""A collective of the user's own, which a test names: each rank calls it in a process, with its own input."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from pytest_probe import frameworks
from pytest_probe.check import Case, CaseOutcome
from pytest_probe.errors import SettingsError, Unsupported
from pytest_probe.features.collectives.judging import STANDARD, exchange_verdicts, flat, skipped
from pytest_probe.features.collectives.matching import Match, Part
from pytest_probe.features.collectives.processes import LocalRanks, Processes, RanksFailed
from pytest_probe.model.collective import Collective, RankCall
from pytest_probe.model.dump import Call, Dump, Record
from pytest_probe.model.verdict import Verdict
from pytest_probe.numerics.dtypes import AnyArray

_WHERE = "check_collective"


class UserCollectives(Struct):
    """The processes of a test run, on this machine: one set for each number of ranks and each backend. timeout: as of
    Processes."""

    timeout: float
    started: dict[tuple[int, str], Processes]

    def checked(
        self,
        function: Callable[..., Any],
        reference: str,
        inputs: Sequence[Any],
        ranks: int | None,
        backend: str,
    ) -> list[CaseOutcome]:
        """What the check of each rank leaves. Raises SettingsError for what cannot be checked."""
        given = [frameworks.array_of(each) for each in inputs]
        if len(given) < 2 or (ranks is not None and ranks != len(given)):
            raise SettingsError(f"{_WHERE}: inputs", len(given), f"give one for each of {ranks or 'at least 2'} ranks")
        if len({(each.dtype, each.shape) for each in given}) > 1:
            kinds = "tensors of several shapes or dtypes"
            raise SettingsError(f"{_WHERE}: inputs", kinds, "give all ranks one of each")
        api = frameworks.collectives(frameworks.DEFAULT)
        assert api is not None
        if reference not in api.REFERENCES:
            raise SettingsError(f"{_WHERE}: reference", reference, f"give one of {', '.join(api.REFERENCES)}")
        kind, reduction = api.REFERENCES[reference]
        place = _place(function)
        name = place[2]
        numbers = tuple(range(len(given)))
        parts, call = dict[int, Part](), Call((), {}, None, None)
        for rank in numbers:
            record = Record(name, "", name, rank, b"", b"")
            dump = Dump(Path(), frameworks.DEFAULT, "", "", (record,), lambda _: call, lambda _: ())
            parts[rank] = Part(dump, record, Collective(name, kind, numbers, rank, reduction, 0))
        calls = [RankCall(kind, reduction, len(given), 0, each, (), function=place) for each in given]
        key = len(given), backend
        processes = self.started.setdefault(key, Processes(LocalRanks(), *key, api.PROGRAM, self.timeout))
        found = _verdicts(processes, calls, Match(parts), given)
        return [CaseOutcome(Case(parts[rank].dump, parts[rank].record, "forward"), found[rank]) for rank in numbers]

    def close(self) -> None:
        for processes in self.started.values():
            processes.close()


def _verdicts(
    processes: Processes, calls: Sequence[RankCall], match: Match, given: Sequence[AnyArray]
) -> Sequence[Verdict]:
    try:
        received = [flat(each) for each in processes.make(calls)]
        sent = {rank: each.reshape(-1) for rank, each in enumerate(given)}
        found = exchange_verdicts(match, sent, dict(enumerate(received)))
        return [found[rank] for rank in sorted(found)]
    except Unsupported as error:
        return [skipped(error)] * len(given)
    except RanksFailed as error:
        return [Verdict("error", STANDARD, str(error), notes=tuple(error.stacks))] * len(given)


def _place(function: Callable[..., Any]) -> tuple[str, str, str]:
    """The file of a function, its module and its name there. Raises SettingsError where no other process finds it."""
    name, file = getattr(function, "__qualname__", ""), None
    if inspect.isfunction(function) and "<" not in name:
        file = inspect.getsourcefile(function)
    if file is None:
        wanted = "give a function that stands in a module by itself: each rank imports it by its name"
        raise SettingsError(f"{_WHERE}: function", name or repr(function), wanted)
    return str(Path(file).resolve()), function.__module__, name
