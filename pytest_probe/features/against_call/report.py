"""What a run of two implementations says at its end: a line an API and dtype."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod

from msgspec import Struct, field

from pytest_probe.model.pairing import Status
from pytest_probe.model.result import Result, number
from pytest_probe.reports.terminal import count, wrap

_WORDS: Mapping[Status, str] = {
    "equal": "equal",
    "rounding": "rounding",
    "own": "own errors",
    "random": "random",
    "incomparable": "not compared",
}
_UNJUDGED: tuple[Status, ...] = ("random", "incomparable")


class _Api(Struct):
    """The results of an API in a dtype: how many elements they have, and how many of those have equal bits; how many
    outputs differ, and by what."""

    cases: int = 0
    size: int = 0
    equal: float = 0.0
    differing: int = 0
    statuses: Counter[Status] = field(default_factory=Counter)
    suspects: Counter[str] = field(default_factory=Counter)
    differences: Counter[str] = field(default_factory=Counter)

    def add(self, result: Result) -> None:
        assert result.against is not None
        self.cases += 1
        self.statuses[result.against.status] += 1
        if result.against.suspect:
            self.suspects[result.against.suspect] += 1
        for output in result.outputs:
            if "equal_bits" in output.metrics:
                size, share = prod(output.shape), number(output.metrics["equal_bits"])
                self.size += size
                self.equal += size * share
                self.differing += share < 1
            if "difference" in output.metrics:
                self.differences[str(output.metrics["difference"])] += 1

    def words(self) -> str:
        share = f"{_percent(self.equal / self.size)} bit-equal" if self.size else ""
        return "; ".join(filter(None, (share, *self._differences(), *self._verdicts())))

    def _differences(self) -> Iterator[str]:
        for words, times in self.differences.most_common(2):
            yield words if times == self.differing else f"{words} in {times:,} of {self.differing:,} outputs"

    def _verdicts(self) -> Iterator[str]:
        for status in _UNJUDGED:
            if self.statuses[status]:
                yield f"{self.statuses[status]:,} {_WORDS[status]}"
        for side, times in self.suspects.most_common():
            yield f"own errors of {side} in {times:,} of {self.cases:,}"
        if not self.suspects and self.size:
            yield "both within noise"


class Report(Struct):
    """Collects results as they come, in any order."""

    apis: dict[tuple[str, str], _Api] = field(default_factory=dict)

    def add(self, result: Result) -> None:
        if result.against is not None:
            self.apis.setdefault((result.api, result.dtype), _Api()).add(result)

    def lines(self, width: int) -> Iterator[str]:
        """width: the columns of the terminal."""
        if not self.apis:
            return
        found = sum((each.statuses for each in self.apis.values()), Counter[Status]())
        counts = ", ".join(f"{found[status]:,} {words}" for status, words in _WORDS.items() if found[status])
        yield from wrap(f"A against B, {count(found.total(), 'case')}: {counts}", width=width)
        for (api, dtype), each in sorted(self.apis.items()):
            yield from wrap(f"{api} {dtype}".rstrip() + f": {each.words()}", "    ", "  ", width)


def _percent(share: float) -> str:
    """A share of which some is missing is not 100 %."""
    return "100 %" if share == 1 else f"{min(100 * share, 99.9):.3g} %"
