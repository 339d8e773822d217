"""What the rows of many runs tell: a metric over runs, and what got worse between two."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from msgspec import Struct

from pytest_probe.features.history.file import METRICS
from pytest_probe.model.verdict import SEVERITY

# A metric that is so many times as large is worse: luck moves them by less (docs/gate.md).
WORSE = 2.0


class Run(Struct, frozen=True):
    """One run, with the counts of its verdicts."""

    id: int
    started: str
    device: str
    framework: str
    digests: str
    cases: int
    errors: int
    warnings: int
    skips: int


class Point(Struct, frozen=True):
    """A metric in one run: the largest of so many cases, and the case that has it. None where none has the metric."""

    run: Run
    cases: int
    value: float | None
    name: str


class Worse(Struct, frozen=True):
    """A case that got worse: its verdicts and its metric in the older run and in the newer."""

    name: str
    verdicts: tuple[str, str]
    before: float | None
    now: float | None

    @property
    def factor(self) -> float:
        """How many times as large the metric is; inf where it was zero."""
        if self.before is None or self.now is None or self.before == self.now:
            return 1.0
        return self.now / self.before if self.before else float("inf")


def runs(file: sqlite3.Connection, since: str = "") -> list[Run]:
    """Those that began at this time or later, the oldest first. since is the beginning of an ISO date, "" for all."""
    names = ", ".join(Run.__struct_fields__)
    return [Run(*row) for row in file.execute(f"SELECT {names} FROM runs WHERE started >= ? ORDER BY id", (since,))]


def points(file: sqlite3.Connection, api: str, metric: str, since: str = "") -> list[Point]:
    """The metric in each run that has cases of the API, whose name or pattern may also be that of cases."""
    assert metric in METRICS
    known = {run.id: run for run in runs(file, since)}
    where = "api = :api"
    if not file.execute("SELECT 1 FROM apis WHERE name = ?", (api,)).fetchone():
        where = "(api GLOB :api OR name GLOB :api OR name GLOB '*::' || :api)"
    # Beside max() SQLite takes case_id from the row that has it. The name is looked up afterwards, once a run.
    query = f"""
        SELECT run_id, count(*), max({metric}), case_id FROM history
        WHERE {where} AND started >= :since GROUP BY run_id ORDER BY run_id
    """
    found = file.execute(query, {"api": api, "since": since}).fetchall()
    return [Point(known[id], number, value, _name(file, case)) for id, number, value, case in found if id in known]


def _name(file: sqlite3.Connection, case: int) -> str:
    return str(file.execute("SELECT name FROM cases WHERE id = ?", (case,)).fetchone()[0])


def apis(file: sqlite3.Connection) -> list[str]:
    return [name for (name,) in file.execute("SELECT name FROM apis ORDER BY name")]


def worse(file: sqlite3.Connection, before: int, now: int, metric: str) -> list[Worse]:
    """The cases whose verdict got worse, or whose metric is more than twice as large, the worst first."""
    assert metric in METRICS
    rows = file.execute(
        f"""
        SELECT cases.name, old.verdict, new.verdict, old.{metric}, new.{metric}
        FROM results AS old
        JOIN results AS new ON new.run_id = ? AND new.api_id = old.api_id AND new.case_id = old.case_id
        JOIN cases ON cases.id = old.case_id WHERE old.run_id = ?
        """,
        (now, before),
    )
    found = (Worse(name, (was, here), old, new) for name, was, here, old, new in rows)
    return sorted((each for each in found if _is_worse(each)), key=_order)


def _severity(verdict: str) -> int:
    return dict(SEVERITY).get(verdict, 0)  # type: ignore[call-overload, no-any-return]


def _is_worse(case: Worse) -> bool:
    was, now = map(_severity, case.verdicts)
    return (now > was and now > SEVERITY["pass"]) or case.factor > WORSE


def _order(case: Worse) -> tuple[int, float, str]:
    was, now = map(_severity, case.verdicts)
    return was - now, -case.factor, case.name


def series(
    file: sqlite3.Connection, ids: Iterable[str], metric: str, last: int
) -> tuple[list[Run], dict[str, list[float | None]]]:
    """The metric of cases in the last runs that have any of them, the oldest first; None where a run has none."""
    assert metric in METRICS
    wanted = set(ids)
    cases = {id: name for id, name in file.execute("SELECT id, name FROM cases") if name in wanted}
    found: list[tuple[Run, dict[int, float | None]]] = []
    for run in reversed(runs(file)):
        rows = file.execute(f"SELECT case_id, {metric} FROM results WHERE run_id = ?", (run.id,))
        values = {id: value for id, value in rows if id in cases}
        if values:
            found.append((run, values))
        if len(found) == last:
            break
    found.reverse()
    return [run for run, _ in found], {name: [values.get(id) for _, values in found] for id, name in cases.items()}


def previous(known: Sequence[Run], of: Run) -> Run | None:
    """The last run of the same dumps before one."""
    return next((run for run in reversed(known) if run.id < of.id and run.digests == of.digests), None)
