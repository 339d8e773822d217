from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_probe.standards.auto import Auto
from tests.support.asking import comparison

ZEROS = np.zeros((3, 2), np.float32)
TWICE = np.array([0, 2, 0])
ROWS = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
LAST, FIRST = np.array([[5.0, 6], [0, 0], [3, 4]]), np.array([[1.0, 2], [0, 0], [3, 4]])
MIXED, NEITHER = np.array([[1.0, 6], [0, 0], [3, 4]]), np.array([[7.0, 6], [0, 0], [3, 4]])
ELSEWHERE = np.array([[5.0, 6], [0, 0], [3, 5]])
CALLS: dict[str, tuple[Any, ...]] = {
    "Torch.index_copy": (ZEROS, 0, TWICE, ROWS),
    "Tensor.index_put_": (ZEROS, (TWICE,), ROWS),
    "Torch.index_put": (ZEROS, [TWICE, None], ROWS, False),
    "Tensor.__setitem__": (ZEROS, TWICE, ROWS),
    "Torch.scatter": (ZEROS, 0, np.stack([TWICE, TWICE], axis=1), ROWS),
    "Tensor.put_": (ZEROS, np.array([0, 1, 4, 5, 0, 1 - 6]), ROWS.ravel()),
}


def verdict(api: str, actual: Any, expected: Any = LAST, args: Any = None) -> str:
    return Auto().judge(comparison(actual, expected, api=api, dtype="float32", args=args or CALLS[api])).verdict


@pytest.mark.parametrize("api", CALLS)
def test_any_of_the_values_may_come_last(api: str) -> None:
    assert [verdict(api, actual) for actual in (LAST, FIRST, MIXED)] == ["pass"] * 3


@pytest.mark.parametrize("api", CALLS)
def test_no_other_value_may(api: str) -> None:
    assert [verdict(api, actual) for actual in (NEITHER, ELSEWHERE, np.zeros((3, 2)))] == ["error"] * 3


def test_places_that_are_named_once_hold_what_was_written() -> None:
    args = (ZEROS, 0, np.array([0, 2]), ROWS[:2])
    assert verdict("Torch.index_copy", FIRST, FIRST, args) == "pass"
    assert verdict("Torch.index_copy", FIRST[::-1], FIRST, args) == "error"


def test_a_number_for_all() -> None:
    args = (ZEROS, 0, np.array([[0, 0], [0, 0]]), 7.0)
    wanted = np.array([[7.0, 7], [0, 0], [0, 0]])
    assert verdict("Torch.scatter", wanted, wanted, args) == "pass"
    assert verdict("Torch.scatter", wanted[::-1], wanted, args) == "error"


def test_sums_are_judged_by_noise() -> None:
    args = (ZEROS, (TWICE,), ROWS, True)
    wanted = np.array([[6.0, 8], [0, 0], [3, 4]])
    assert verdict("Torch.index_put", wanted * (1 + 2.0**-23), wanted, args) == "pass"
    assert verdict("Torch.index_put", FIRST, wanted, args) == "error"
