"""Which cases of a test that is marked `sampled` are for `make exhaustive` alone.

Parameters that are combined make many cases. Of them `make test` runs a diagonal: with each next value of the longest
parameter comes the next of every other, so that each value of each is run. `sampled(n)` leaves every n-th of these.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest


def mark_further(items: Sequence[pytest.Item]) -> None:
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled") and not item.get_closest_marker("exhaustive"):
            tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        mark = cases[0].get_closest_marker("sampled")
        assert mark is not None
        kept = set(diagonal([_values(case) for case in cases])[:: mark.args[0] if mark.args else 1])
        for number, case in enumerate(cases):
            if number not in kept:
                case.add_marker(pytest.mark.exhaustive)


def diagonal(cases: Sequence[Sequence[object]]) -> list[int]:
    """The numbers of the cases that are kept, of each case's parameters. Where the product has holes, the first case of
    a value that the diagonal misses is kept too."""
    columns = [[id(value) for value in column] for column in zip(*cases, strict=True)]
    values = [list(dict.fromkeys(column)) for column in columns]
    places = [tuple(map(list.index, values, row)) for row in zip(*columns, strict=True)] or [()] * len(cases)
    longest = max(map(len, values), default=1)
    steps = {tuple(step % len(value) for value in values) for step in range(longest)}
    kept = {number for number, place in enumerate(places) if place in steps}
    seen = {each for number in kept for each in enumerate(places[number])}
    for number, place in enumerate(places):
        if not seen.issuperset(enumerate(place)):
            kept.add(number)
            seen.update(enumerate(place))
    return sorted(kept)


def _values(case: pytest.Item) -> list[object]:
    found: dict[str, object] = case.callspec.params if hasattr(case, "callspec") else {}
    return [value for _, value in sorted(found.items())]
