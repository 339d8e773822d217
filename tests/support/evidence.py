"""Tests that judge many calls, marked `evidence`: `make evidence` runs them all and prints what their checks said.

`make test` runs a tenth (--tenth): of each function one case in ten, and twenty at least, so that a function of few
cases runs with all that it plants and all that it lets pass. The function's name is the seed, so that they are the same
in each run, whatever happens to other tests.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "evidence"
FEWEST = 20
KINDS = ("pass", "warning", "error", "skip")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tenth", action="store_true", help="Of the tests that are marked evidence run a tenth")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.evidence)
    if config.getoption("tenth"):
        marked = [item for item in items if item.get_closest_marker("evidence")]
        left = set(marked) - {marked[number] for number in drawn([item.nodeid for item in marked])}
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = [item for item in items if item not in left]


def drawn(ids: Sequence[str]) -> set[int]:
    """The places of the tenth."""
    cases: dict[str, list[int]] = defaultdict(list)
    for place, name in enumerate(ids):
        cases[name.partition("[")[0]].append(place)
    found = set[int]()
    for name, of in cases.items():
        found |= set(random.Random(name).sample(of, min(len(of), max(FEWEST, -(-len(of) // 10)))))
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """What the checks of a test say goes into its report."""
    if not item.get_closest_marker("evidence"):
        return (yield)
    from pytest_probe.check import Checker

    said: Counter[str] = Counter()
    run = Checker.run

    def noted(*args: Any, **kwargs: Any) -> Any:
        checked = run(*args, **kwargs)
        said[checked.verdict.verdict] += 1
        return checked

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checker, "run", noted)
        try:
            return (yield)
        finally:
            item.user_properties.append(("verdicts", dict(said)))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for report in chain(*terminalreporter.stats.values()):
        if getattr(report, "when", "") == "teardown":
            found[report.nodeid.partition("::")[0]].update(dict(report.user_properties).get("verdicts", {}))
    if any(found.values()) and not config.getoption("tenth"):
        terminalreporter.section("verdicts of checks")
        for line in table({name: counts for name, counts in found.items() if counts}):
            terminalreporter.line(line)


def table(found: Mapping[str, Counter[str]]) -> Iterator[str]:
    """The verdicts by file. What is healthy passes; planted faults are errors."""
    rows = [*sorted(found.items()), ("all", sum(found.values(), Counter()))]
    width = max(len(name) for name, _ in rows)
    yield " ".join([" " * width, *(f"{kind:>8}" for kind in KINDS)])
    for name, counts in rows:
        yield " ".join([f"{name:<{width}}", *(f"{counts[kind]:8,}" for kind in KINDS)])
