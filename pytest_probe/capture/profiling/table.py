"""The table that the terminal shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_probe.capture.profiling.durations import Spent
from pytest_probe.capture.profiling.stopwatch import Section, Stopwatch
from pytest_probe.capture.profiling.track import Api
from pytest_probe.model.measurement import in_unit

# More rows than a screen has lines are read by nobody.
MOST_ROWS = 30

_HEADS = ("share", "self", "total", "calls", "p50", "p90", "p99", "least", "first")


def text(stopwatch: Stopwatch, rows: int = MOST_ROWS) -> str:
    """The whole stretch, and then each section; of each at most so many rows."""
    parts = [_section(stopwatch, stopwatch.whole, rows)]
    parts += [_section(stopwatch, section, rows) for section in stopwatch.sections.values()]
    return "\n\n".join("\n".join(part) for part in parts)


def duration(microseconds: float | None) -> str:
    """Three digits with their unit, "-" for None. Zeros at the end stay, so that a column has one width."""
    if microseconds is None:
        return "-"
    value, unit = in_unit(microseconds)
    return f"{_three(value)} {unit}"


def _three(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


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
    told = {"errors": str(spent.errors), "memory": f"{spent.memory:+,} B" if spent.memory is not None else "-"}
    return [
        f"{spent.share:.1%}",
        duration(spent.own),
        duration(spent.total),
        str(spent.calls),
        *map(duration, times),
        *(duration(spent.device) if name == "device" else told[name] for name in optional),
    ]


def _name(api: Api, several: bool) -> str:
    framework = f"{api.framework}: " if several else ""
    direction = "" if api.direction == "forward" else f" {api.direction}"
    shapes = f" ({api.shapes})" if api.shapes else ""
    return f"{framework}{api.name}{direction}{shapes}"
