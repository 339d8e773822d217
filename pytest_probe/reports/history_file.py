"""The SQLite file of --probe-history: its tables, how a run is appended in one transaction, and the queries.

docs/history.md describes the tables for those who query them. The rows of an API in a run lie next to each other, so
that an append writes in one place, and a query of an API reads few. The view's CROSS JOIN keeps SQLite to that order.
"""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from operator import itemgetter
from pathlib import Path
from sys import intern
from typing import Any

import msgspec
from msgspec import Struct, field

from pytest_probe.errors import SettingsError
from pytest_probe.model.result import Result
from pytest_probe.model.verdict import SEVERITY
from pytest_probe.reports.case_metrics import metrics_of

_OPTION = "--probe-history"
SCHEMA = 1
# "prob": SQLite's application id, which identifies a history file.
_APPLICATION = 0x70726F62
# Seconds that a writer waits for another one.
_PATIENCE = 60.0
# The metrics of a case in a run, by the names of their columns.
METRICS = (
    "limit_share", "noise_ratio", "noise_rms", "max_ulp", "mean_ulp", "max_abs", "max_rel", "mismatch",
    "time_us", "peak_bytes", "duration",
)  # fmt: skip
TABLES = f"""
CREATE TABLE runs (
    id INTEGER PRIMARY KEY, started TEXT NOT NULL, finished TEXT, folder TEXT NOT NULL, device TEXT NOT NULL,
    framework TEXT NOT NULL, seed INTEGER NOT NULL, standard TEXT NOT NULL, dtypes TEXT NOT NULL, dumps TEXT NOT NULL,
    digests TEXT NOT NULL, exit_status INTEGER, cases INTEGER NOT NULL, errors INTEGER NOT NULL,
    warnings INTEGER NOT NULL, passes INTEGER NOT NULL, skips INTEGER NOT NULL, not_run INTEGER NOT NULL,
    settings TEXT NOT NULL, versions TEXT NOT NULL
);
CREATE TABLE apis (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE cases (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, api_id INTEGER NOT NULL REFERENCES apis (id),
    direction TEXT NOT NULL
);
CREATE TABLE results (
    run_id INTEGER NOT NULL REFERENCES runs (id), api_id INTEGER NOT NULL REFERENCES apis (id),
    case_id INTEGER NOT NULL REFERENCES cases (id),
    verdict TEXT NOT NULL, dtype TEXT NOT NULL, device TEXT NOT NULL, {", ".join(f"{name} REAL" for name in METRICS)},
    PRIMARY KEY (run_id, api_id, case_id)
) WITHOUT ROWID;
CREATE VIEW history AS
    SELECT runs.id AS run_id, started, framework, apis.name AS api, case_id,
        (SELECT name FROM cases WHERE id = case_id) AS name,
        (SELECT direction FROM cases WHERE id = case_id) AS direction,
        verdict, dtype, results.device AS device, {", ".join(METRICS)}
    FROM runs CROSS JOIN apis CROSS JOIN results ON run_id = runs.id AND api_id = apis.id;
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {SCHEMA};
"""
# A metric that is so many times as large is worse: luck moves them by less (docs/ci.md).
_WORSE = 2.0


class NotAppended(Exception):
    """Why a run was not appended, in a few words."""


@contextmanager
def open_history(path: Path, where: str = _OPTION) -> Iterator[sqlite3.Connection]:
    """The file, which is there. where is the option or the argument that named it.

    Raises SettingsError where it is no history, or one of a newer schema.
    """
    try:
        uri = f"{path.resolve().as_uri()}?mode=rw"
        with closing(sqlite3.connect(uri, timeout=_PATIENCE, uri=True, isolation_level=None)) as file:
            _check(file, path, where)
            yield file
    except sqlite3.Error as error:
        raise SettingsError(where, str(path), f"it cannot be used as a history: {error}") from None


def check(path: Path, where: str = _OPTION) -> None:
    """Can a run be appended? Raises SettingsError where the file is there and is no history, or of a newer schema."""
    if path.exists() and path.stat().st_size:
        with open_history(path, where):
            pass


def _check(file: sqlite3.Connection, path: Path, where: str) -> None:
    names = ("application_id", "user_version")
    ours, schema = (int(file.execute(f"PRAGMA {name}").fetchone()[0]) for name in names)
    if ours != _APPLICATION:
        raise SettingsError(where, str(path), f"it is no history: give a file that {_OPTION} wrote, or a new one")
    if schema > SCHEMA:
        wanted = f"it is of schema {schema}, this version knows {SCHEMA}: upgrade pytest-probe, or give a new file"
        raise SettingsError(where, str(path), wanted)


class HistoryRun(Struct):
    """The cases of a run, taken in one at a time and kept small, until the run is appended."""

    _rows: list[tuple[Any, ...]] = field(default_factory=list)
    _verdicts: Counter[str] = field(default_factory=Counter)

    def add(self, result: Result) -> None:
        """Take in a case."""
        numbers = dict(metrics_of(result))
        # SQLite makes NULL of NaN, which would say that there is no such metric.
        values = map(numbers.get, METRICS)
        metrics = (math.inf if value is not None and math.isnan(value) else value for value in values)
        case = (result.id, intern(result.api), intern(result.direction))
        self._rows.append((case, intern(result.verdict), intern(result.dtype), intern(result.device), *metrics))
        self._verdicts[result.verdict] += 1

    def append(self, path: Path, run: Mapping[str, Any], *, resumes: bool = False) -> None:
        """Append the run that run.json describes, in one transaction: all of it or nothing is there. run["folder"] is
        the folder of its results. resumes: it replaces its own beginning, which has the same start and folder. Raises
        NotAppended."""
        try:
            with closing(sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)) as file:
                file.execute("BEGIN IMMEDIATE")
                if not file.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
                    for statement in filter(None, map(str.strip, TABLES.split(";"))):
                        file.execute(statement)
                _check(file, path, _OPTION)
                self._append(file, run, resumes)
                file.execute("COMMIT")
        except (sqlite3.Error, SettingsError) as error:
            raise NotAppended(str(error)) from None

    def _append(self, file: sqlite3.Connection, run: Mapping[str, Any], resumes: bool) -> None:
        row = self._run(run)
        began = file.execute("SELECT id FROM runs WHERE started = :started AND folder = :folder", row).fetchall()
        for (id,) in began if resumes else ():
            file.execute("DELETE FROM results WHERE run_id = ?", (id,))
            file.execute("DELETE FROM runs WHERE id = ?", (id,))
        names = ", ".join(row)
        values = ", ".join(f":{name}" for name in row)
        id = file.execute(f"INSERT INTO runs ({names}) VALUES ({values})", row).lastrowid
        places = ", ".join("?" * (6 + len(METRICS)))
        rows = [(id, *_ids(file, case), *rest) for case, *rest in self._rows]
        # In the order of the table, so that its pages are written one after the other.
        rows.sort(key=itemgetter(1, 2))
        file.executemany(f"INSERT OR REPLACE INTO results VALUES ({places})", rows)

    def _run(self, run: Mapping[str, Any]) -> dict[str, Any]:
        settings, devices, dumps = run["settings"], run.get("devices", ()), run.get("dumps", ())
        return {
            "started": run["started"],
            "finished": run.get("finished"),
            "folder": run.get("folder", ""),
            "device": ", ".join(dict.fromkeys(str(device["device"]) for device in devices)),
            "framework": ", ".join(dict.fromkeys(f"{each['framework']} {each['version']}" for each in devices)),
            "seed": run["seed"],
            "standard": settings["standard"],
            "dtypes": ",".join(settings["dtypes"]),
            "dumps": ", ".join(str(dump["label"]) for dump in dumps),
            "digests": " ".join(sorted(str(dump["digest"]) for dump in dumps)),
            "exit_status": run.get("exit_status"),
            "cases": len(self._rows),
            "errors": self._verdicts["error"],
            "warnings": self._verdicts["warning"],
            "passes": self._verdicts["pass"],
            "skips": self._verdicts["skip"],
            "not_run": run.get("not_run") or 0,
            "settings": msgspec.json.encode(settings).decode(),
            "versions": msgspec.json.encode(run.get("versions", {})).decode(),
        }


def _ids(file: sqlite3.Connection, case: tuple[str, str, str]) -> tuple[int, int]:
    """The ids of a case's API and of the case, by name, API and direction."""
    name, api, direction = case
    found = file.execute("SELECT api_id, id FROM cases WHERE name = ?", (name,)).fetchone()
    if found is not None:
        return int(found[0]), int(found[1])
    file.execute("INSERT OR IGNORE INTO apis (name) VALUES (?)", (api,))
    (api_id,) = file.execute("SELECT id FROM apis WHERE name = ?", (api,)).fetchone()
    row = (name, api_id, direction)
    added = file.execute("INSERT INTO cases (name, api_id, direction) VALUES (?, ?, ?)", row)
    return int(api_id), int(added.lastrowid or 0)


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
    """The runs that began at this time or later, the oldest first. since is the beginning of an ISO date, "" for
    all."""
    names = ", ".join(Run.__struct_fields__)
    return [Run(*row) for row in file.execute(f"SELECT {names} FROM runs WHERE started >= ? ORDER BY id", (since,))]


def points(file: sqlite3.Connection, api: str, metric: str, since: str = "") -> list[Point]:
    """The metric in each run that has cases of the API. api is the name of an API, else a pattern of APIs or cases."""
    assert metric in METRICS
    known = {run.id: run for run in runs(file, since)}
    where = "api = :api"
    if not file.execute("SELECT 1 FROM apis WHERE name = ?", (api,)).fetchone():
        where = "(api GLOB :api OR name GLOB :api OR name GLOB '*::' || :api)"
    # With max() in a query, SQLite takes case_id from the row with the maximum. The name is looked up afterwards, once
    # a run.
    query = f"""
        SELECT run_id, count(*), max({metric}), case_id FROM history
        WHERE {where} AND started >= :since GROUP BY run_id ORDER BY run_id
    """
    found = file.execute(query, {"api": api, "since": since}).fetchall()
    name_of = "SELECT name FROM cases WHERE id = ?"
    return [
        Point(known[id], number, value, str(file.execute(name_of, (case,)).fetchone()[0]))
        for id, number, value, case in found
        if id in known
    ]


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
    severity = {str(verdict): number for verdict, number in SEVERITY.items()}
    found: list[tuple[tuple[int, float, str], Worse]] = []
    for name, was, here, old, new in rows:
        case, first, last = Worse(name, (was, here), old, new), severity.get(was, 0), severity.get(here, 0)
        if last > max(first, SEVERITY["pass"]) or case.factor > _WORSE:
            found.append(((first - last, -case.factor, name), case))
    return [case for _, case in sorted(found, key=itemgetter(0))]


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
