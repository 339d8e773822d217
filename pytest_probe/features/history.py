"""--probe-history: the run is appended to a file when it ends."""

from __future__ import annotations

import argparse
import math
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_probe import frameworks
from pytest_probe.errors import SettingsError
from pytest_probe.model.result import Result
from pytest_probe.plugin.feature import Feature
from pytest_probe.plugin.reporting import Reporting
from pytest_probe.reports.history_file import (
    METRICS,
    HistoryRun,
    NotAppended,
    apis,
    check,
    open_history,
    points,
    previous,
    runs,
    worse,
)
from pytest_probe.system.text import check_name, one_of, printable, printable_line


class History(Feature):
    traits = frozenset({"needs run"})

    def begin(self, reporting: Reporting) -> None:
        assert self.probe.settings.history is not None
        self._path = self.probe.settings.history
        check(self._path)
        self._run = HistoryRun()

    def add(self, result: Result) -> None:
        self._run.add(result)

    def close(self, reporting: Reporting) -> None:
        out, resumes = self.probe.settings.out, self.probe.has("resumes")
        try:
            folder = "" if out is None else printable_line(str(out))
            self._run.append(self._path, {**reporting.run, "folder": folder}, resumes=resumes)
        except NotAppended as error:
            reporting.trouble(f"the run was not appended to {self._path}: {error}")


_FIRST = "noise_ratio"
# Columns of a bar, and cases that are listed.
_BAR, _LISTED = 30, 20
_SINCE = re.compile(r"\d{4}(-\d\d(-\d\d([T ]\d\d(:\d\d(:\d\d)?)?)?)?)?")


def add_parser(commands: Any) -> None:
    """Register the command with argparse."""
    parser = commands.add_parser(
        "history",
        help="show how a metric moved over the runs of --probe-history",
        description="With an API: draw a metric over runs, the largest of the API's cases in each. Without: list the "
        "runs, and what got worse between the last two of the same dumps.",
        epilog="exit status: 0, 2 where an argument cannot be used",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="a file of --probe-history")
    parser.add_argument("api", metavar="API", nargs="?", help="an API or a case, or a pattern of one")
    parser.add_argument(
        "--metric", metavar="NAME", default=_FIRST, help=f"one of {', '.join(METRICS)} (default: {_FIRST})"
    )
    parser.add_argument("--since", metavar="DATE", default="", help="leave out older runs: 2026-11, 2026-11-23, ...")
    parser.add_argument("--between", metavar="A,B", help="say what got worse between these two runs")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """The exit status. Raises SettingsError."""
    metric = check_name("--metric", arguments.metric, METRICS)
    since = arguments.since.replace(" ", "T")
    if since and not _SINCE.fullmatch(since):
        raise SettingsError("--since", arguments.since, "give a date, as 2026-11-23, or its beginning")
    if not arguments.file.is_file():
        raise SettingsError("FILE", str(arguments.file), "there is no such file; a run with --probe-history makes it")
    with open_history(arguments.file, "FILE") as file:
        lines = list(_lines(file, arguments.api, metric, since, arguments.between))
    print(printable("\n".join(lines)))
    return 0


def _lines(file: sqlite3.Connection, api: str | None, metric: str, since: str, between: str | None) -> Iterator[str]:
    known = runs(file)
    if api is not None:
        yield from _drawn(file, frameworks.signatures().spelled(api), metric, since)
        return
    shown = [run for run in known if run.started >= since]
    if shown:
        yield f"{'run':>5}  {'started':<19}  {'cases':>7} {'error':>7} {'warning':>7} {'skip':>7}  device"
    else:
        yield "no runs"
    for each in shown:
        counts = f"{each.cases:>7,} {each.errors:>7,} {each.warnings:>7,} {each.skips:>7,}"
        yield f"{each.id:>5}  {each.started[:19]:<19}  {counts}  {each.device} {each.framework}".rstrip()
    if between:
        by_id = {str(run.id): run for run in known}
        names = [name.strip() for name in between.split(",")]
        if len(names) != 2 or not all(name in by_id for name in names):
            wanted = "give the numbers of two runs, as 3,7; without API and --between the runs are listed"
            raise SettingsError("--between", between, wanted)
        before, last = by_id[names[0]], by_id[names[1]]
    else:
        previous_one = previous(known, shown[-1]) if shown else None
        if previous_one is None:
            return
        before, last = previous_one, shown[-1]
    yield ""
    found = worse(file, before.id, last.id, metric)
    cases = "1 case" if len(found) == 1 else f"{len(found):,} cases"
    yield f"between run {before.id} and run {last.id}: {cases} got worse by verdict or {metric}"
    for case in found[:_LISTED]:
        was, now = case.verdicts
        verdict = was if was == now else f"{was} -> {now}"
        yield f"  {case.name}: {verdict}, {_number(case.before)} -> {_number(case.now)}"
    if len(found) > _LISTED:
        yield f"  and {len(found) - _LISTED:,} more"


def _drawn(file: sqlite3.Connection, api: str, metric: str, since: str) -> Iterator[str]:
    """Bars by the logarithm, from the least value that is not 0 to the largest. Raises SettingsError where no case has
    such a name."""
    found = points(file, api, metric, since)
    if not found:
        names = apis(file)
        meant = one_of(names, api) if names else "the file has no cases"
        raise SettingsError("API", api, f"no run has it; {meant}" if not since else f"no run since {since} has it")
    yield f"{metric} of {api} over runs, the largest of its cases"
    yield f"{'run':>5}  {'started':<19}  {'cases':>5} {metric:>12}"
    logs = [math.log(point.value) for point in found if point.value and math.isfinite(point.value)]
    low = min(logs, default=0.0)
    span = max(logs, default=0.0) - low
    for point in found:
        head = f"{point.run.id:>5}  {point.run.started[:19]:<19}  {point.cases:>5,} {_number(point.value):>12}"
        bar = ""
        if point.value and math.isinf(point.value):
            bar = "█" * _BAR + "▶"
        elif point.value:
            share = (math.log(point.value) - low) / span if span else 0.0
            bar = "█" * (1 + round(share * (_BAR - 1)))
        yield f"{head}  {bar}".rstrip()
    last = next((point for point in reversed(found) if point.value is not None), None)
    if last is not None:
        yield f"the largest in run {last.run.id}: {last.name}"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"
