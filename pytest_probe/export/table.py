"""A table of a CSV file as data: its columns, and how it writes numbers and what is missing. And the statuses of calls,
which tools have in a table of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct, field

from pytest_probe.model.verdict import PASS_SELF

BLANK = " "
# What a cell says of a verdict. An API's row has two; of several outputs, and of several items, the worst counts: SKIP
# only where all skip.
STATUSES = ("SKIP", "pass", PASS_SELF, "warning", "error")


class Column(Struct, frozen=True):
    """value is what it takes from a row, None where the row has nothing for it."""

    header: str
    value: Callable[[Any], object]


class Table(Struct, frozen=True):
    """blank: what a cell without a value says; number: how a float is written."""

    columns: tuple[Column, ...]
    blank: str = BLANK
    number: Callable[[float], str] = "{:.14f}".format

    @property
    def header(self) -> tuple[str, ...]:
        return tuple(column.header for column in self.columns)

    def line(self, row: Any) -> list[str]:
        cells = [column.value(row) for column in self.columns]
        return [
            self.blank if cell is None else self.number(cell) if isinstance(cell, float) else str(cell)
            for cell in cells
        ]

    def lines(self, rows: Iterable[Any]) -> Iterator[Sequence[str]]:
        yield self.header
        yield from map(self.line, rows)


def status_of(verdict: str) -> str:
    return "SKIP" if verdict == "skip" else verdict


def worst(statuses: Iterable[str], default: str = "SKIP") -> str:
    return max(statuses, key=STATUSES.index, default=default)


class CallStatuses(Struct):
    """The status of each API call by direction, and its message, if it has one: a table of a tool's results."""

    by_call: dict[str, dict[str, str]] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)

    def add(self, call: str, direction: str, status: str) -> None:
        """Of several the worst counts."""
        known = self.by_call.setdefault(call, {})
        known[direction] = worst((known.get(direction, status), status))

    def lines(self, name: str = "API Name", blank: str = BLANK) -> Iterator[Sequence[str]]:
        """name: the header of the first column; blank: what is said of a direction that a call lacks."""
        yield (name, "Forward Test Success", "Backward Test Success", "Message")
        for call, known in self.by_call.items():
            row = (call, known.get("forward", blank), known.get("backward", blank))
            yield (*row, self.messages[call]) if call in self.messages else row
