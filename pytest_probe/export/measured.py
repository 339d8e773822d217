"""Times and memory in the columns of PaddleAPEX's comparisons: of a run's results, or of two runs, each a log of
PaddleAPEX's, the folder that has it, or a --probe-out.

prof_checking_result.csv, memory_checking_result.csv, and prof_summary.csv, which has times with verdicts, in the order
of the dump. As in PaddleAPEX, -1 is a time that nobody knows, and never divided.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.errors import SettingsError
from pytest_probe.export.details import check_same_dump
from pytest_probe.export.table import Column, Table
from pytest_probe.model.result import Result
from pytest_probe.reports.results_file import RESULTS, read_results, refused
from pytest_probe.system.files import open_regular

TIMES, MEMORY, SUMMARY = "prof_checking_result.csv", "memory_checking_result.csv", "prof_summary.csv"
# A verdict that nobody gave.
_NOT_JUDGED = "N/A"
_PROFILE, _MEMORY_LOG = "profile_analyze*.log", "memory_analyze*.log"
_TIME_FIELDS, _MEMORY_LINE = 9, re.compile(r"(\S.*?)\s*:\t(-?\d+)")


class Measured(Struct, frozen=True):
    """One line. name as the side writes it ("paddle.add*0.forward"); text is the number as it stands there."""

    name: str
    text: str
    dtype: str = ""
    input_shape: str = ""
    output_shape: str = ""
    direction: str = ""

    @property
    def number(self) -> float | None:
        """None where nobody knows: PaddleAPEX writes -1."""
        number = float(self.text)
        return number if number > 0 else None


class Beside(Struct, frozen=True):
    """The row of a line: the numbers of both sides as they are written, and their ratio or difference. status is the
    verdict on the case."""

    line: Measured
    bench: str | float | None
    device: str | float | None
    apart: str | float | None
    status: str = _NOT_JUDGED


_NAME = Column("API Name", lambda row: row.line.name)
_TIME = (
    _NAME,
    Column("dtype", lambda row: row.line.dtype),
    Column("input shape", lambda row: row.line.input_shape),
    Column("output shape", lambda row: row.line.output_shape),
    Column("direction", lambda row: row.line.direction),
    Column("Bench Time(us)", lambda row: row.bench),
    Column("Device Time(us)", lambda row: row.device),
    Column("Device/Bench Time Ratio", lambda row: row.apart),
)
TIME_TABLE = Table(_TIME, "None", str)
SUMMARY_TABLE = Table((*_TIME, Column("Acc_status", lambda row: row.status)), "None", str)
MEMORY_TABLE = Table(
    (
        _NAME,
        Column("Bench Memory Usage (B)", lambda row: row.bench),
        Column("Device Memory Usage (B)", lambda row: row.device),
        Column("Memory Difference", lambda row: row.apart),
    ),
    "",
    str,
)


def time_of(result: Result) -> Iterator[Beside]:
    """The row of a case that has a time."""
    time, named = result.time, result.portable_id
    if time is not None and time.median_us is not None:
        inputs, outputs = (str([list(shape) for shape in each]) for each in (time.input_shapes, time.output_shapes))
        line = Measured(named.call, str(time.median_us), result.dtype, inputs, outputs, result.direction)
        bench, ratio = (-1, "") if time.beside is None else (time.beside.median_us, time.beside.ratio)
        yield Beside(line, bench, line.text, ratio, result.accuracy if result.outputs else _NOT_JUDGED)


def memory_of(result: Result) -> Iterator[Beside]:
    """The row of a case whose memory was counted."""
    memory, named = result.memory, result.portable_id
    if memory is not None and memory.peak_bytes is not None:
        line = Measured(f"{named.entry}{f'*{named.dtype}' if named.dtype else ''}", str(memory.peak_bytes))
        bench = memory.benchmark_bytes
        apart = "" if bench is None else abs(memory.peak_bytes - bench)
        yield Beside(line, -1 if bench is None else bench, line.text, apart)


# The files that a run has, by name: each a table, and what its rows are of a result.
OF_RESULTS = {
    TIMES: (TIME_TABLE, time_of),
    SUMMARY: (SUMMARY_TABLE, time_of),
    MEMORY: (MEMORY_TABLE, memory_of),
}


class Log(Struct, frozen=True):
    """Lines by the name that both sides have for them. file: PaddleAPEX's log, None of a --probe-out; unread: the
    numbers of lines that have no such name."""

    lines: Mapping[str, Measured]
    command: str
    file: Path | None = None
    unread: Sequence[int] = ()


def has_log(path: Path) -> bool:
    """Are the times of this path PaddleAPEX's?"""
    return path.suffix == ".log" or (path.is_dir() and not (path / RESULTS).is_file() and any(path.glob(_PROFILE)))


def read_times(path: Path) -> Log:
    """Raises SettingsError where the path holds no times."""
    return _read(path, _PROFILE, "times", _of_time, time_of)


def read_memory(path: Path) -> Log:
    """Raises SettingsError where the path holds no memory."""

    def of_line(line: str) -> Measured | None:
        found = _MEMORY_LINE.fullmatch(line)
        return Measured(found[1], found[2]) if found else None

    return _read(path, _MEMORY_LOG, "memory", of_line, memory_of)


def _read(
    path: Path,
    pattern: str,
    what: str,
    of_line: Callable[[str], Measured | None],
    of_result: Callable[[Result], Iterator[Beside]],
) -> Log:
    command, file = f"compare --{'time' if what == 'times' else what}", None
    if not (path / RESULTS).is_file():
        logs = sorted(path.glob(pattern)) if path.is_dir() else [path]
        if not logs:
            raise SettingsError(command, str(path), f"it holds no {pattern} and no {RESULTS}")
        if len(logs) > 1:
            names = ", ".join(log.name for log in logs)
            raise SettingsError(command, str(path), f"it holds {len(logs)} of {pattern}; give the file itself: {names}")
        file = logs[0]
    found: list[Measured | None]
    with refused(command, path, "it cannot be read: {error.strerror}", "it cannot be read: {error}"):
        if file is None:
            results = sorted(read_results(path / RESULTS), key=lambda result: result.place or 0)
            rows = ((result, row) for result in results if result.api for row in of_result(result))
            found = [replace(row.line, name=result.portable_id.name) for result, row in rows]
        else:
            with open_regular(file) as opened:
                found = [of_line(line.decode("utf-8", "replace").rstrip("\n")) for line in opened]
    # A name alike on both sides, also where they ran in other dtypes.
    lines = {line.name.replace("*", "."): line for line in found if line is not None}
    if not lines:
        wanted = f"give a --probe-out with --probe-mode=time,mem, or a folder of PaddleAPEX's with {pattern}"
        raise SettingsError(command, str(path), f"it holds no {what}; {wanted}")
    return Log(lines, command, file, [number for number, line in enumerate(found, 1) if line is None])


def check_common(device: Log, benchmark: Log) -> None:
    """Raises SettingsError where two logs have not half of their lines in common: they are of unlike dumps."""
    if device.file and benchmark.file:
        check_same_dump(device.command, device.lines.keys(), benchmark.lines.keys(), "lines")


def _of_time(line: str) -> Measured | None:
    cells = line.split("\t")
    try:
        if len(cells) == _TIME_FIELDS:
            float(cells[8])
            return Measured(cells[0], cells[8], cells[2], cells[4], cells[6], cells[7])
    except ValueError:
        pass
    return None


def time_rows(device: Log, benchmark: Log) -> list[Beside]:
    """A row for each call and direction."""

    def ratio(mine: Measured, other: Measured) -> float | None:
        return mine.number / other.number if mine.number and other.number else None

    return list(_rows(device, benchmark, ratio, benchmark))


def memory_rows(device: Log, benchmark: Log) -> list[Beside]:
    """A row for each call and direction."""
    return list(_rows(device, benchmark, lambda mine, other: abs(float(mine.text) - float(other.text)), device))


def _rows(
    device: Log, benchmark: Log, apart: Callable[[Measured, Measured], float | None], shown: Log
) -> Iterator[Beside]:
    """shown: the side whose line counts where both have one."""
    for key in dict.fromkeys((*device.lines, *benchmark.lines)):
        mine, other = device.lines.get(key), benchmark.lines.get(key)
        line = shown.lines.get(key) or mine or other
        assert line is not None
        gap = None if mine is None or other is None else apart(mine, other)
        bench, own = (None if side is None else side.text for side in (other, mine))
        yield Beside(line, bench, own, gap)


def without_ratio(rows: Sequence[Beside]) -> Iterator[str]:
    """A line for the terminal, where there is one to say."""
    if missing := sum(row.apart is None for row in rows):
        yield f"no ratio in {missing:,} of {len(rows):,} lines: a side lacks them, or its time is not above zero"


def memory_line(rows: Sequence[Beside]) -> str:
    """What the terminal says of the memory of both sides."""
    both = [(float(row.device), float(row.bench)) for row in rows if row.device is not None and row.bench is not None]
    more, less = sum(mine > other for mine, other in both), sum(mine < other for mine, other in both)
    alone = len(rows) - len(both)
    return (
        f"memory on both sides: {len(both):,}; more in the first run: {more:,}, less: {less:,}; on one side: {alone:,}"
    )


def judged(rows: Iterable[Beside], result: Path) -> Iterator[Beside]:
    """Rows of times with the verdicts of a result file. Raises SettingsError."""
    statuses = _statuses(result)
    return (replace(row, status=statuses.get(row.line.name.replace("*", "."), _NOT_JUDGED)) for row in rows)


def _statuses(path: Path) -> dict[str, str]:
    """By the names of lines: of a call, a direction and, where it ran in several, a dtype."""
    found = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header, *rows = csv.reader(file)
            forward, backward = "Forward Test Success", "Backward Test Success"
            if header[1:3] != [forward, backward]:
                raise ValueError(f"it has no column {forward}")
            for cells in rows:
                call, bracket, dtype = cells[0].replace("*", ".").partition("[")
                for direction, status in zip(("forward", "backward"), cells[1:3], strict=True):
                    found[f"{call}.{direction}{bracket}{dtype}"] = status
    except (OSError, UnicodeDecodeError, ValueError, IndexError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        wanted = f"{reason}; give an accuracy_checking_result or api_precision_compare_result file"
        raise SettingsError("--summary", str(path), wanted) from None
    return found
