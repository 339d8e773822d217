"""The times of two runs side by side, by API and direction: of two programs that `pytest-probe time` timed, or of the
same cases in two runs with --probe-mode=time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from pytest_probe.capture.profiling.report import ROWS, duration
from pytest_probe.errors import SettingsError
from pytest_probe.export.measured import has_log
from pytest_probe.export.measured import read_times as paddleapex_times
from pytest_probe.reports.results_file import RESULTS, decoded, read_results, refused
from pytest_probe.reports.terminal import count
from pytest_probe.system.files import open_regular

FILE = "times_compared.csv"
_COMMAND = "compare --time"
_GIVE = (
    "give folders that `pytest-probe time -o` or `pytest --probe-mode=time --probe-out` wrote, or PaddleAPEX's with "
    "profile_analyze*.log"
)
_COLUMNS = ("API", "Direction", "Calls", "Time (us)", "Other time (us)", "Ratio", "Loss (us)")
# How a program was timed: with other ones a row has another meaning.
_WAYS = ("nested", "asynchronous", "backward")
# More rows than a screen has lines are read by nobody.
_SHOWN = 30

Key: TypeAlias = tuple[str, str]


class Time(Struct, frozen=True):
    """The time of one call, in microseconds, and how many such calls were made."""

    microseconds: float
    calls: int = 1


class Times(Struct, frozen=True):
    """The times of a run, by API and direction; of a timed program one of all calls, of cases one of each. way: how a
    program was timed."""

    kind: Literal["program", "cases"]
    by_api: Mapping[Key, Mapping[str, Time]]
    way: Mapping[str, object] = {}


class ComparedTime(Struct, frozen=True):
    """An API in a direction: the calls that both runs made, and their time in each, in microseconds."""

    api: str
    direction: str
    calls: int
    here: float
    there: float

    @property
    def loss(self) -> float:
        return self.here - self.there

    @property
    def ratio(self) -> float:
        return self.here / self.there if self.there else float("inf")

    @property
    def name(self) -> str:
        return self.api if self.direction == "forward" else f"{self.api} {self.direction}"


def read_times(path: Path) -> Times:
    """The times in a folder, or in a file. Raises SettingsError."""
    if has_log(path):
        # PaddleAPEX's means of 100 calls.
        means: dict[Key, dict[str, Time]] = {}
        for key, line in paddleapex_times(path).lines.items():
            if line.number is not None:
                api = key.rpartition(".")[0].rpartition(".")[0]
                means.setdefault((api, line.direction), {})[key] = Time(line.number)
        return Times("cases", means)
    found = next((path / name for name in (ROWS, RESULTS) if (path / name).is_file()), path)
    if found.is_dir():
        raise SettingsError(_COMMAND, str(path), f"it holds no {ROWS} and no {RESULTS}; {_GIVE}")
    with refused(_COMMAND, path, f"it cannot be read ({{error.strerror}}); {_GIVE}", f"{{error}}; {_GIVE}"):
        if found.name == ROWS:
            times = _of_program(found)
        else:
            cases: dict[Key, dict[str, Time]] = {}
            for result in read_results(found):
                if result.time is not None and result.time.compares and result.time.median_us is not None:
                    times_of = cases.setdefault((result.api, result.direction), {})
                    times_of[result.id] = Time(result.time.median_us)
            times = Times("cases", cases)
    if not times.by_api:
        raise SettingsError(_COMMAND, str(path), f"it holds no times; {_GIVE}")
    return times


class _Line(Struct):
    """A line of `time.jsonl`, as far as it is read."""

    kind: str
    section: str = ""
    api: str = ""
    direction: str = ""
    shapes: str | None = None
    calls: int = 0
    own: float = 0.0
    p50: float | None = None
    nested: bool = False
    asynchronous: bool = False
    backward: bool = False


def _of_program(path: Path) -> Times:
    """An API's calls, each with the median: first calls load and compile."""
    found: dict[Key, dict[str, Time]] = {}
    way: dict[str, object] = {}
    decoder = msgspec.json.Decoder(_Line)
    with open_regular(path) as file:
        for number, text in enumerate(file, 1):
            line = decoded(text, decoder, f"{path}:{number}")
            if line.kind == "run":
                way = {name: getattr(line, name) for name in _WAYS}
            elif line.kind == "api" and not line.section and line.shapes is None and line.calls:
                one = line.own / line.calls if line.p50 is None else line.p50
                found[line.api, line.direction] = {"": Time(one, line.calls)}
    return Times("program", found, way)


def compare(here: Times, there: Times) -> list[ComparedTime]:
    """What both runs timed, the largest loss first. Raises SettingsError where their times have different meanings."""
    if here.kind != there.kind:
        raise SettingsError(_COMMAND, f"{here.kind}, {there.kind}", "one is of a program, the other of cases")
    other = [name for name in _WAYS if here.way.get(name) != there.way.get(name)]
    if other:
        told = "; ".join(f"{name}: {json.dumps(here.way[name])}, {json.dumps(there.way[name])}" for name in other)
        raise SettingsError(_COMMAND, told, "time both programs with the same options")
    rows = []
    for key, times in here.by_api.items():
        other_times = there.by_api.get(key, {})
        # Of what both made; calls are those of the first.
        both = [(times[name], other_times[name]) for name in times if name in other_times]
        if both:
            mine, theirs = (sum(pair[side].microseconds * pair[0].calls for pair in both) for side in (0, 1))
            rows.append(ComparedTime(*key, sum(time.calls for time, _ in both), mine, theirs))
    return sorted(rows, key=lambda row: -row.loss)


def lines(found: Sequence[ComparedTime], here: Times, there: Times) -> Iterator[str]:
    """The terminal's table."""
    if found:
        calls, mine, theirs = (sum(getattr(row, name) for row in found) for name in ("calls", "here", "there"))
        whole = ComparedTime("", "", calls, mine, theirs)
        what = "call" if here.kind == "program" else "case"
        yield (
            f"timed on both sides: {count(whole.calls, what)} of {count(len({row.api for row in found}), 'API')}, "
            f"{duration(whole.here)} in the first run, {duration(whole.there)} in the second ({whole.ratio:.2f} times)"
        )
        yield from _table(found[:_SHOWN], what)
        if len(found) > _SHOWN:
            yield f"... and {len(found) - _SHOWN:,} more rows"
    for side, mine, other in (("first", here, there), ("second", there, here)):
        alone = sorted({key[0] for key in mine.by_api} - {key[0] for key in other.by_api})
        if alone:
            more = f" and {len(alone) - _SHOWN:,} more" if len(alone) > _SHOWN else ""
            yield f"only in the {side} run: {', '.join(alone[:_SHOWN])}{more}"
    if not found:
        yield "nothing has a time on both sides"


def _table(found: Sequence[ComparedTime], what: str) -> Iterator[str]:
    cells = [("loss", "ratio", "first", "second", f"{what}s", "API")]
    cells += [
        (
            f"{'-' if row.loss < 0 else '+'}{duration(abs(row.loss))}",
            f"{row.ratio:.2f}",
            duration(row.here),
            duration(row.there),
            f"{row.calls:,}",
            row.name,
        )
        for row in found
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for *numbers, name in cells:
        yield f"{'  '.join(cell.rjust(width) for cell, width in zip(numbers, widths, strict=False))}  {name}"


def file_of(found: Sequence[ComparedTime]) -> Mapping[str, Iterable[Sequence[object]]]:
    """The lines of `times_compared.csv`, by that name."""
    rows = (
        (row.api, row.direction, row.calls, row.here, row.there, f"{row.ratio:.4g}", f"{row.loss:.6g}") for row in found
    )
    return {FILE: [_COLUMNS, *rows]}
