"""What is written of a timed run: the terminal's table, `time.jsonl` with a row a line, and `trace.json` for viewers of
Chrome's traces."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from pytest_probe.capture.profiling.stopwatch import Section, Spent, Stopwatch
from pytest_probe.capture.profiling.track import Api
from pytest_probe.errors import SettingsError
from pytest_probe.model.measurement import in_unit

ROWS = "time.jsonl"
TRACE = "trace.json"
# The track of a trace that shows sections: no thread has this number.
_SECTIONS = 0
# More rows than a screen has lines are read by nobody.
_MOST_ROWS = 30
_HEADS = ("share", "self", "total", "calls", "p50", "p90", "p99", "least", "first")


def take(folder: str) -> Path:
    """Make the folder. Raises SettingsError where it holds a run, or cannot be written."""
    path = Path(folder)
    found = next((name for name in (ROWS, TRACE) if (path / name).exists()), None)
    if found is not None:
        raise SettingsError("-o", folder, f"it holds the times of an earlier run ({found}); give another folder")
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError(0, "no permission to write there")
    except OSError as error:
        raise SettingsError("-o", folder, f"it cannot be written ({error.strerror})") from None
    return path


def write(stopwatch: Stopwatch, folder: Path) -> None:
    """Raises OSError where the disk refuses."""
    encode = msgspec.json.encode
    (folder / ROWS).write_bytes(b"".join(encode(line) + b"\n" for line in _lines(stopwatch)))
    with (folder / TRACE).open("wb") as file:
        file.write(b'{"displayTimeUnit": "ns", "traceEvents": [\n')
        for number, event in enumerate(events(stopwatch)):
            file.write((b",\n" if number else b"") + encode(event))
        file.write(b"\n]}\n")


def _lines(stopwatch: Stopwatch) -> Iterator[dict[str, Any]]:
    """What ran, then for the whole and each section its rows. Times are in microseconds."""
    yield {
        "kind": "run",
        "pytest_probe": version("pytest-probe"),
        "python": platform.python_version(),
        "versions": stopwatch.versions,
        "nested": stopwatch.nested,
        "asynchronous": stopwatch.asynchronous,
        "backward": stopwatch.backward,
        "by_shape": stopwatch.by_shape,
        "threads": stopwatch.threads,
        "waited": None if stopwatch.waited is None else stopwatch.waited / 1e3,
        "notes": list(stopwatch.notes.values()),
    }
    for section in (stopwatch.whole, *stopwatch.sections.values()):
        yield {"kind": "section", "section": section.path, "times": section.times, "wall": section.spent / 1e3}
        for api, spent in section.rows():
            row = {"kind": "api", "section": section.path, "framework": api.framework, "api": api.name}
            yield row | {"direction": api.direction, "shapes": api.shapes or None} | msgspec.structs.asdict(spent)


def events(stopwatch: Stopwatch) -> Iterator[dict[str, Any]]:
    """Chrome's trace events: a B and an E for each call, in the order of a thread's time. ts is in microseconds from
    the start of the timing on."""
    start = stopwatch.whole.stretches[0][0]
    named = {_SECTIONS: "sections"} | {track.number: track.thread for track in stopwatch.traces()}
    for number, name in named.items():
        yield {"ph": "M", "name": "thread_name", "pid": os.getpid(), "tid": number, "args": {"name": name}}
    calls: dict[int, list[tuple[int, int, str, str]]] = {
        track.number: [
            (begin, begin + spent, api.name + " backward" * (api.direction != "forward"), api.framework)
            for api, begin, spent in traced
        ]
        for track, traced in stopwatch.traces().items()
    }
    calls[_SECTIONS] = [
        (begin, end, section.path, "section")
        for section in stopwatch.sections.values()
        for begin, end in section.stretches
    ]
    for number, intervals in calls.items():
        for phase, nanoseconds, name, category in _nested(intervals):
            yield {
                "ph": phase,
                "name": name,
                "cat": category,
                "ts": (nanoseconds - start) / 1e3,
                "pid": os.getpid(),
                "tid": number,
            }


def _nested(intervals: list[tuple[int, int, str, str]]) -> Iterator[tuple[str, int, str, str]]:
    """Begins and ends in the order of time; what begins first ends last."""
    open_: list[tuple[int, int, str, str]] = []
    for interval in sorted(intervals, key=lambda one: (one[0], -one[1])):
        while open_ and open_[-1][1] <= interval[0]:
            _, end, name, category = open_.pop()
            yield "E", end, name, category
        yield "B", interval[0], *interval[2:]
        open_.append(interval)
    while open_:
        _, end, name, category = open_.pop()
        yield "E", end, name, category


def text(stopwatch: Stopwatch, rows: int = _MOST_ROWS) -> str:
    """The whole stretch, and then each section; at most so many rows of each."""
    sections = (stopwatch.whole, *stopwatch.sections.values())
    return "\n\n".join("\n".join(_section(stopwatch, section, rows)) for section in sections)


def duration(microseconds: float | None) -> str:
    """Three digits with their unit, "-" for None. Zeros at the end stay, so that a column has one width."""
    if microseconds is None:
        return "-"
    value, unit = in_unit(microseconds)
    shown = f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
    return f"{shown} {unit}"


def _section(stopwatch: Stopwatch, section: Section, most: int) -> Iterator[str]:
    rows = section.rows()
    yield _head(stopwatch, section, [spent for api, spent in rows if api.whole is None])
    if not rows:
        return
    several = len({api.framework for api, _ in rows}) > 1
    optional = [name for name in ("errors", "memory", "device") if any(getattr(spent, name) for _, spent in rows)]
    shown = rows[:most]
    cells = [[*_HEADS, *optional, "API"]]
    cells += [[*_cells(spent, optional), _name(api, several)] for api, spent in shown]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = [cell.rjust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        yield f"{'  '.join(padded)}  {row[-1]}"
    if len(rows) > most:
        yield f"... and {len(rows) - most} more rows"


def _head(stopwatch: Stopwatch, section: Section, rows: Sequence[Spent]) -> str:
    measured = duration(sum(row.own for row in rows))
    calls = sum(row.calls for row in rows)
    times = f", {section.times} times" if section.times > 1 else ""
    named = f"section {section.path}{times}" if section.path else "all"
    head = f"{named}: {duration(section.spent / 1e3)}, of which {measured} in {calls} calls of {len(rows)} APIs"
    if stopwatch.waited is not None and not section.path:
        head += f"; times are those of issuing, then the device went on for {duration(stopwatch.waited / 1e3)}"
    return head


def _cells(spent: Spent, optional: Sequence[str]) -> list[str]:
    times = (spent.p50, spent.p90, spent.p99, spent.least, spent.first)
    optional_cells = {
        "errors": str(spent.errors),
        "memory": f"{spent.memory:+,} B" if spent.memory is not None else "-",
    }
    return [
        f"{spent.share:.1%}",
        duration(spent.own),
        duration(spent.total),
        str(spent.calls),
        *map(duration, times),
        *(duration(spent.device) if name == "device" else optional_cells[name] for name in optional),
    ]


def _name(api: Api, several: bool) -> str:
    framework = f"{api.framework}: " if several else ""
    direction = "" if api.direction == "forward" else f" {api.direction}"
    shapes = f" ({api.shapes})" if api.shapes else ""
    return f"{framework}{api.name}{direction}{shapes}"
