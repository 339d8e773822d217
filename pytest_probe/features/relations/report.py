"""What a run says of relations: by relation, API and dtype, in how many cases it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct, field

from pytest_probe.model.result import Result
from pytest_probe.model.verdict import RELATION, Outcome
from pytest_probe.reports.results_file import RESULTS, read_results
from pytest_probe.reports.tables import write_json
from pytest_probe.reports.terminal import count, wrap

FILE = "relations.json"
# What guard could not ask of a case, at the end of its words.
NO_PAGES = "the ends of pages were not asked"


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
            holds, broken, unasked = _sums(rows)
            yield f"relations: {holds:,} hold, {broken:,} broken, {unasked:,} not checked"
        for name in dict.fromkeys(row.relation for row in rows):
            own = [row for row in rows if row.relation == name]
            holds, broken, unasked = _sums(own)
            of = f"{holds:,} of " if broken else ""
            left = f" ({unasked:,} not checked)" if unasked else ""
            left += f" (in {pages:,} {NO_PAGES})" if (pages := self.without_pages[name]) else ""
            yield from wrap(f"{name}: holds in {of}{count(holds + broken, 'case')}{left}", width=width)
            # The directions together.
            held, asked = Counter[str](), Counter[str]()
            for row in own:
                api = f"{row.api} {row.dtype}".rstrip()
                held[api] += row.holds
                asked[api] += row.holds + row.broken
            if broken:
                words = (f"{api} {held[api]:,} of {number:,}" for api, number in asked.items() if number)
                yield from wrap(", ".join(words), "    ", "  ", width)

    def write(self, path: Path) -> Path:
        """Raises OSError."""
        return write_json(path, "relations", self.rows())


def write_file(folder: Path) -> list[Path]:
    """Write the file beside the results that have all of it; none where no relation was asked. Raises OSError."""
    report = Report()
    for result in read_results(folder / RESULTS):
        report.add(result)
    return [report.write(folder / FILE)] if report.found else []


def _sums(rows: Sequence[Row]) -> tuple[int, int, int]:
    return sum(row.holds for row in rows), sum(row.broken for row in rows), sum(row.unasked for row in rows)
