"""What a run says of its worth: how many cases find an error, which prove little, and what would have been found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct, field

from pytest_probe.model.result import Result
from pytest_probe.model.verdict import WORTH_SCALE
from pytest_probe.reports.tables import WeakCases
from pytest_probe.reports.terminal import count, wrap

# APIs that are named.
_APIS = 5


class Report(Struct):
    """Collects results as they come, in any order. faults counts by name outputs in which a fault was found, and in
    which it was planted; by_api the same of all faults."""

    cases: int = 0
    scale: int = 0
    weak: WeakCases = field(default_factory=WeakCases)
    apis: Counter[str] = field(default_factory=Counter)
    caught: Counter[str] = field(default_factory=Counter)
    planted: Counter[str] = field(default_factory=Counter)
    caught_by_api: Counter[str] = field(default_factory=Counter)
    planted_by_api: Counter[str] = field(default_factory=Counter)

    def add(self, result: Result) -> None:
        worth = result.worth
        if worth is None:
            return
        api = f"{result.api} {result.direction}".rstrip()
        self.cases += 1
        self.scale += worth.scale
        self.apis[api] += 1
        if worth.weak:
            self.weak.add(api, result.portable_id.name, worth.weak)
        for name, (caught, planted) in worth.faults.items():
            self.caught[name] += caught
            self.planted[name] += planted
            self.caught_by_api[api] += caught
            self.planted_by_api[api] += planted

    def lines(self, width: int) -> Iterator[str]:
        """width: the columns of the terminal."""
        if not self.cases:
            return
        found = 100 * self.scale // self.cases
        words = f"worth: a scale error of {100 * WORTH_SCALE:.1g} % would be found in {found} % of"
        yield from wrap(f"{words} {count(self.cases, 'case')}", width=width)
        yield from self.weak.lines("proves" if self.weak.apis.total() == 1 else "prove", width)
        yield f"{'faults planted in outputs':<40} {'found':>8} {'planted':>8}"
        for name, planted in self.planted.items():
            yield f"  {name:<38} {self.caught[name]:>8,} {planted:>8,}"
        shares = {api: self.caught_by_api[api] / planted for api, planted in self.planted_by_api.items() if planted}
        least = sorted((share, api) for api, share in shares.items() if share < 1)[:_APIS]
        if least:
            words = ", ".join(f"{api} {100 * share:.0f} %" for share, api in least)
            yield from wrap(f"least found: {words}", width=width)

    def below(self, least: int) -> Iterator[str]:
        """What is wrong where the dump proves less than so many percent, and which APIs need other records."""
        share = 100 * (self.cases - self.weak.apis.total()) / max(self.cases, 1)
        if not self.cases or share >= least:
            return
        named = [
            f"{api} ({number:,} of {count(self.apis[api], 'case')})" for api, number in self.weak.apis.most_common()
        ]
        more = f" and {len(named) - _APIS:,} more APIs" if len(named) > _APIS else ""
        yield (
            f"worth: {share:.3g} % of the cases prove something, --probe-worth asks for {least} %; "
            f"other records are needed of {', '.join(named[:_APIS])}{more}"
        )
