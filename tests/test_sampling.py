"""What `make test` leaves to `make exhaustive` of tests that are marked `sampled`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest

from tests.support.sampling import diagonal

TESTS = """
import pytest

@pytest.mark.sampled
@pytest.mark.parametrize("size", ["small", "large", pytest.param("huge", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(("fault", "words"), [("a", 1), ("b", 2), ("c", 3), ("d", 4)])
def test_faults(fault, words, size): ...

@pytest.mark.sampled(3)
@pytest.mark.parametrize("number", range(7))
def test_numbers(number): ...

@pytest.mark.sampled
def test_alone(): ...

@pytest.mark.parametrize("number", range(2))
def test_others(number): ...
"""


@pytest.mark.parametrize("sizes", [(1,), (5,), (2, 3), (3, 2), (7, 2, 2), (2, 4, 3)])
def test_each_value_of_each_parameter_is_run(sizes: tuple[int, ...]) -> None:
    cases = list(product(*map(range, sizes)))
    kept = [cases[number] for number in diagonal(cases)]
    assert len(kept) == max(sizes)
    assert [{case[place] for case in kept} for place in range(len(sizes))] == [set(range(size)) for size in sizes]


@pytest.mark.parametrize(
    ("cases", "kept"),
    [
        ([], []),
        ([()], [0]),
        ([(0, 0), (0, 5), (9, 5)], [0, 2]),
        ([(0, 1), (1, 0)], [0, 1]),
        ([(0, 1), (1, 1), (2, 0)], [1, 2, 0]),
    ],
)
def test_holes_leave_no_value_out(cases: Sequence[tuple[int, ...]], kept: Sequence[int]) -> None:
    assert diagonal(cases) == sorted(kept)


def test_the_others_are_exhaustive(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    pytester.makeconftest("from tests.support.sampling import mark_further as pytest_collection_modifyitems")
    pytester.makeini("[pytest]\nmarkers =\n    sampled\n    exhaustive")
    outcome = pytester.runpytest("--collect-only", "-qm", "not exhaustive")
    kept = [line.partition("::")[2] for line in outcome.outlines if "::" in line]
    faults = ["test_faults[a-1-small]", "test_faults[b-2-large]", "test_faults[c-3-small]", "test_faults[d-4-large]"]
    numbers = [f"test_numbers[{number}]" for number in (0, 3, 6)]
    assert sorted(kept) == sorted([*faults, *numbers, "test_alone", "test_others[0]", "test_others[1]"])
