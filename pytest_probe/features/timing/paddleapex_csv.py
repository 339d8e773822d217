"""The times and the memory of a run in PaddleAPEX's columns, from its results.

prof_checking_result.csv, memory_checking_result.csv, and prof_summary.csv, which has times with verdicts. As in
PaddleAPEX, -1 is a time that nobody knows. UTF-8 with a byte order mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from pytest_probe.model.measurement import Shape
from pytest_probe.model.result import Result
from pytest_probe.reports.paddleapex_columns import (
    MEMORY,
    MEMORY_COLUMNS,
    NOT_JUDGED,
    STATUS,
    SUMMARY,
    TIME_COLUMNS,
    TIMES,
    UNKNOWN,
)
from pytest_probe.reports.results_file import RESULTS, read_results
from pytest_probe.reports.tables import write_rows

_Row = Sequence[object]


def write_measurements(folder: Path) -> list[Path]:
    """The files of the results in a folder, without files for which nothing was measured. Raises OSError."""
    found = []
    for name, columns, row in (
        (TIMES, TIME_COLUMNS, time_row),
        (SUMMARY, (*TIME_COLUMNS, STATUS), summary_row),
        (MEMORY, MEMORY_COLUMNS, memory_row),
    ):
        if next(_rows(folder, row), None) is not None:
            found.append(write_rows(folder / name, chain([columns], _rows(folder, row))))
    return found


def _rows(folder: Path, row: Callable[[Result], _Row | None]) -> Iterator[_Row]:
    for result in read_results(folder / RESULTS):
        found = row(result) if result.api else None
        if found is not None:
            yield found


def time_row(result: Result) -> _Row | None:
    """The row of a case; None where it has no time."""
    time = result.time
    if time is None or time.median_us is None:
        return None
    beside = time.beside
    bench, ratio = (UNKNOWN, "") if beside is None else (beside.median_us, beside.ratio)
    shapes = (_shapes(time.input_shapes), _shapes(time.output_shapes))
    return [result.portable_id.call, result.dtype, *shapes, result.direction, bench, time.median_us, ratio]


def summary_row(result: Result) -> _Row | None:
    row = time_row(result)
    return None if row is None else [*row, result.accuracy if result.outputs else NOT_JUDGED]


def memory_row(result: Result) -> _Row | None:
    """The row of a case; None where its memory was not counted."""
    memory = result.memory
    if memory is None or memory.peak_bytes is None:
        return None
    name = f"{result.portable_id.entry}{f'*{result.portable_id.dtype}' if result.portable_id.dtype else ''}"
    bench = memory.benchmark_bytes
    difference = "" if bench is None else abs(memory.peak_bytes - bench)
    return [name, UNKNOWN if bench is None else bench, memory.peak_bytes, difference]


def _shapes(shapes: Sequence[Shape]) -> str:
    return str([list(shape) for shape in shapes])
