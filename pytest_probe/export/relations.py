"""What a run says of relations: by relation, API and dtype, in how many cases it holds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from pytest_probe.model.result import Result
from pytest_probe.model.verdict import RELATION, Outcome
from pytest_probe.reports.tables import write_json
from pytest_probe.reports.terminal import count, wrap

FILE = "relations.json"
# What guard could not ask of a case, at the end of its words.
NO_PAGES = "the ends of pages were not asked"


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

    def rows(self) -> list[dict[str, Any]]:
        """Of an API in a dtype and a direction: cases in which a relation holds, is broken, and could not be asked."""
        found = []
        for (relation, *case), each in sorted(self.found.items()):
            names = dict(zip(("api", "dtype", "direction"), case, strict=True))
            counts = zip(("holds", "broken", "unasked"), _sums(each), strict=True)
            found.append({"relation": relation, **names, **dict(counts)})
        return found

    def lines(self, width: int) -> Iterator[str]:
        """A line a relation, with the APIs of those that do not hold in all cases; width: the terminal's columns."""
        # Of each relation all, and by API and dtype, the directions together.
        whole, by_api = defaultdict[str, Counter[Outcome]](Counter), defaultdict[str, dict[str, Counter[Outcome]]](dict)
        for (relation, api, dtype, _), each in sorted(self.found.items()):
            whole[relation] += each
            name = f"{api} {dtype}".rstrip()
            by_api[relation][name] = by_api[relation].get(name, Counter()) + each
        if whole:
            holds, broken, unasked = _sums(sum(whole.values(), Counter()))
            yield f"relations: {holds:,} hold, {broken:,} broken, {unasked:,} not checked"
        for relation, found in whole.items():
            holds, broken, unasked = _sums(found)
            of = f"{holds:,} of " if broken else ""
            left = f" ({unasked:,} not checked)" if unasked else ""
            left += f" (in {pages:,} {NO_PAGES})" if (pages := self.without_pages[relation]) else ""
            yield from wrap(f"{relation}: holds in {of}{count(holds + broken, 'case')}{left}", width=width)
            asked = {name: _sums(each)[:2] for name, each in by_api[relation].items()}
            words = (f"{name} {held:,} of {held + wrong:,}" for name, (held, wrong) in asked.items() if held + wrong)
            if broken:
                yield from wrap(", ".join(words), "    ", "  ", width)

    def write(self, path: Path) -> Path:
        """Raises OSError."""
        return write_json(path, "relations", self.rows())


def _sums(found: Counter[Outcome]) -> tuple[int, int, int]:
    return found["pass"], found["warning"] + found["error"], found["skip"]
