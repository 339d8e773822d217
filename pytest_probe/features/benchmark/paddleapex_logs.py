"""The times and the memory of two runs in PaddleAPEX's files: of its logs, or of folders of --probe-out.

In: a log, the folder that has it, or a --probe-out. Out: the rows of prof_checking_result.csv,
memory_checking_result.csv and prof_summary.csv, in the order of the dump.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from pytest_probe.errors import ResultsError, SettingsError
from pytest_probe.features.benchmark.same_dump import check_same_dump
from pytest_probe.features.msprobe_csv.rows import RESULT
from pytest_probe.model.measurement import Shape
from pytest_probe.model.result import Result
from pytest_probe.reports.paddleapex_columns import MEMORY_COLUMNS, NOT_JUDGED, STATUS, TIME_COLUMNS
from pytest_probe.reports.results_file import RESULTS, read_results
from pytest_probe.system.files import open_regular

# What the tool has where a side lacks a call.
_NONE = "None"
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


class Log(Struct, frozen=True):
    """Lines by the name that both sides have for them. file: PaddleAPEX's log, None of a --probe-out; unread: the
    numbers of lines that are none."""

    lines: Mapping[str, Measured]
    command: str
    file: Path | None = None
    unread: Sequence[int] = ()


def has_log(path: Path) -> bool:
    """Are the times of this path PaddleAPEX's?"""
    return path.suffix == ".log" or (path.is_dir() and not (path / RESULTS).is_file() and any(path.glob(_PROFILE)))


def read_times(path: Path) -> Log:
    """Raises SettingsError where the path holds no times."""
    return _read(path, _PROFILE, "times", _of_time, _time_of_result)


def read_memory(path: Path) -> Log:
    """Raises SettingsError where the path holds no memory."""
    return _read(path, _MEMORY_LOG, "memory", _of_memory, _memory_of_result)


def _read(
    path: Path,
    pattern: str,
    what: str,
    of_line: Callable[[str], Measured | None],
    of_result: Callable[[Result], Measured | None],
) -> Log:
    command = f"compare --{'time' if what == 'times' else what}"
    file = None if (path / RESULTS).is_file() else _log(path, pattern, command) if path.is_dir() else path
    unread: list[int] = []
    try:
        if file is None:
            results = sorted(read_results(path / RESULTS), key=lambda result: result.place or 0)
            found = [of_result(result) for result in results if result.api]
        else:
            with open_regular(file) as opened:
                found = [of_line(line.decode("utf-8", "replace").rstrip("\n")) for line in opened]
            unread = [number for number, line in enumerate(found, 1) if line is None]
    except (OSError, ResultsError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SettingsError(command, str(path), f"it cannot be read: {reason}") from None
    lines = {_key(line): line for line in found if line is not None}
    if not lines:
        wanted = f"give a --probe-out with --probe-mode=time,mem, or a folder of PaddleAPEX's with {pattern}"
        raise SettingsError(command, str(path), f"it holds no {what}; {wanted}")
    return Log(lines, command, file, unread)


def _log(folder: Path, pattern: str, command: str) -> Path:
    found = sorted(folder.glob(pattern))
    if not found:
        raise SettingsError(command, str(folder), f"it holds no {pattern} and no {RESULTS}")
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise SettingsError(command, str(folder), f"it holds {len(found)} of {pattern}; give the file itself: {names}")
    return found[0]


def check_common(device: Log, benchmark: Log) -> None:
    """Raises SettingsError where two logs have not half of their lines in common: they are of unlike dumps."""
    if device.file and benchmark.file:
        check_same_dump(device.command, device.lines.keys(), benchmark.lines.keys(), "lines")


def _key(line: Measured) -> str:
    """Alike on both sides, also where they ran in other dtypes."""
    return line.name.replace("*", ".")


def _of_time(line: str) -> Measured | None:
    cells = line.split("\t")
    if len(cells) != _TIME_FIELDS or not _is_number(cells[8]):
        return None
    return Measured(cells[0], cells[8], cells[2], cells[4], cells[6], cells[7])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _of_memory(line: str) -> Measured | None:
    found = _MEMORY_LINE.fullmatch(line)
    return Measured(found[1], found[2]) if found else None


def _time_of_result(result: Result) -> Measured | None:
    time = result.time
    if time is None or time.median_us is None:
        return None
    shapes = _shapes(time.input_shapes), _shapes(time.output_shapes)
    return Measured(result.portable_id.name, str(time.median_us), result.dtype, *shapes, result.direction)


def _shapes(shapes: Sequence[Shape]) -> str:
    return str([list(shape) for shape in shapes])


def _memory_of_result(result: Result) -> Measured | None:
    memory = result.memory
    if memory is None or memory.peak_bytes is None:
        return None
    return Measured(result.portable_id.name, str(memory.peak_bytes))


def time_rows(device: Log, benchmark: Log) -> Iterator[Sequence[str]]:
    """The header, and a line for each call and direction. -1 is never divided."""
    yield TIME_COLUMNS
    for mine, other in _pairs(device, benchmark):
        shown = other or mine
        assert shown is not None
        cells = (shown.name, shown.dtype, shown.input_shape, shown.output_shape, shown.direction)
        yield (*cells, *(_NONE if side is None else side.text for side in (other, mine)), _ratio(mine, other))


def _pairs(device: Log, benchmark: Log) -> Iterator[tuple[Measured | None, Measured | None]]:
    for key in dict.fromkeys((*device.lines, *benchmark.lines)):
        yield device.lines.get(key), benchmark.lines.get(key)


def _ratio(mine: Measured | None, other: Measured | None) -> str:
    if mine is None or other is None or mine.number is None or other.number is None:
        return _NONE
    return str(mine.number / other.number)


def without_ratio(device: Log, benchmark: Log) -> Iterator[str]:
    """A line for the terminal, where there is one to say."""
    ratios = [_ratio(mine, other) for mine, other in _pairs(device, benchmark)]
    if missing := ratios.count(_NONE):
        yield f"no ratio in {missing:,} of {len(ratios):,} lines: a side lacks them, or its time is not above zero"


def memory_line(device: Log, benchmark: Log) -> str:
    """What the terminal says of the memory of both sides."""
    pairs = list(_pairs(device, benchmark))
    both = [(float(mine.text), float(other.text)) for mine, other in pairs if mine is not None and other is not None]
    more, less = sum(mine > other for mine, other in both), sum(mine < other for mine, other in both)
    alone = len(pairs) - len(both)
    return (
        f"memory on both sides: {len(both):,}; more in the first run: {more:,}, less: {less:,}; on one side: {alone:,}"
    )


def memory_rows(device: Log, benchmark: Log) -> Iterator[Sequence[str]]:
    """The header, and a line for each call and direction."""
    yield MEMORY_COLUMNS
    for mine, other in _pairs(device, benchmark):
        shown = mine or other
        assert shown is not None
        gap = "" if mine is None or other is None else str(abs(float(mine.text) - float(other.text)))
        yield (shown.name, *("" if side is None else side.text for side in (other, mine)), gap)


def summary_rows(times: Iterable[Sequence[str]], result: Path) -> Iterator[Sequence[str]]:
    """Rows of times with the verdicts of a result file. Raises SettingsError."""
    header, *rows = times
    statuses = _statuses(result)
    yield (*header, STATUS)
    for row in rows:
        yield (*row, statuses.get(row[0].replace("*", "."), NOT_JUDGED))


def _statuses(path: Path) -> dict[str, str]:
    """By the names of lines: of a call, a direction and, where it ran in several, a dtype."""
    found = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header, *rows = csv.reader(file)
            if tuple(header[1:3]) != RESULT[1:3]:
                raise ValueError(f"it has no column {RESULT[1]}")
            for cells in rows:
                call, bracket, dtype = cells[0].replace("*", ".").partition("[")
                for direction, status in zip(("forward", "backward"), cells[1:3], strict=True):
                    found[f"{call}.{direction}{bracket}{dtype}"] = status
    except (OSError, UnicodeDecodeError, ValueError, IndexError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        wanted = f"{reason}; give an accuracy_checking_result or api_precision_compare_result file"
        raise SettingsError("--summary", str(path), wanted) from None
    return found
