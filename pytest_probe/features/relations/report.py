"""What a run says of relations: by relation, API and dtype, in how many cases it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct, field

from pytest_probe.model.result import Result
from pytest_probe.model.verdict import RELATION, Outcome
from pytest_probe.reports.results_file import RESULTS, read_results
from pytest_probe.reports.terminal import count, wrap
from pytest_probe.system.files import replacing

FILE = "relations.json"
# What guard could not ask of a case, at the end of its words.
NO_PAGES = "the ends of pages were not asked"
_SCHEMA = 1


class Row(Struct, frozen=True):
    """An API in a dtype and a direction: cases in which a relation holds, is broken, and could not be asked."""

    relation: str
    api: str
    dtype: str
    direction: str
    holds: int
    broken: int
    unasked: int


class Report(Struct):
    """Collects results as they come, in any order."""

    found: dict[tuple[str, str, str, str], Counter[Outcome]] = field(default_factory=dict)
    without_pages: Counter[str] = field(default_factory=Counter)

    def add(self, result: Result) -> None:
        for output in result.outputs:
            if output.name.startswith(RELATION):
                key = output.name.removeprefix(RELATION), result.api, result.dtype, result.direction
                self.found.setdefault(key, Counter())[output.verdict] += 1
                self.without_pages[key[0]] += NO_PAGES in output.reason

    def rows(self) -> list[Row]:
        return [
            Row(*key, each["pass"], each["warning"] + each["error"], each["skip"])
            for key, each in sorted(self.found.items())
        ]

    def lines(self, width: int) -> Iterator[str]:
        """A line a relation, with the APIs of those that do not hold in all cases; width: the terminal's columns."""
        rows = self.rows()
        if rows:
            sums = (sum(row.holds for row in rows), sum(row.broken for row in rows), sum(row.unasked for row in rows))
            words = (f"{number:,} {what}" for number, what in zip(sums, ("hold", "broken", "not checked"), strict=True))
            yield f"relations: {', '.join(words)}"
        for name in dict.fromkeys(row.relation for row in rows):
            own = [row for row in rows if row.relation == name]
            asked = sum(row.holds + row.broken for row in own)
            unasked = sum(row.unasked for row in own)
            left = f" ({unasked:,} not checked)" if unasked else ""
            left += f" (in {pages:,} {NO_PAGES})" if (pages := self.without_pages[name]) else ""
            if all(not row.broken for row in own):
                yield from wrap(f"{name}: holds in {count(asked, 'case')}{left}", width=width)
                continue
            yield from wrap(
                f"{name}: holds in {sum(row.holds for row in own):,} of {count(asked, 'case')}{left}", width=width
            )
            words = (f"{api} {row_of}" for api, row_of in _by_api(own))
            yield from wrap(", ".join(words), "    ", "  ", width)

    def write(self, path: Path) -> Path:
        """Raises OSError."""
        content = {"schema": _SCHEMA, "relations": self.rows()}
        with replacing(path) as temporary:
            temporary.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")
        return path


def write_file(folder: Path) -> list[Path]:
    """Write the file beside the results that have all of it; none where no relation was asked. Raises OSError."""
    report = Report()
    for result in read_results(folder / RESULTS):
        report.add(result)
    return [report.write(folder / FILE)] if report.found else []


def _by_api(rows: Iterable[Row]) -> Iterator[tuple[str, str]]:
    """ "12 of 40" of each API and dtype, the directions together."""
    holds, asked = Counter[str](), Counter[str]()
    for row in rows:
        name = f"{row.api} {row.dtype}".rstrip()
        holds[name] += row.holds
        asked[name] += row.holds + row.broken
    for name, number in asked.items():
        if number:
            yield name, f"{holds[name]:,} of {number:,}"
