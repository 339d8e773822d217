"""Sums in float32 in a known order."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_probe.numerics import float32_sums
from pytest_probe.numerics.float32_sums import ORDERS, in_lanes, in_pairs, in_sequence, in_threads, sum_in_order


def uniform(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).random(shape) + 0.5


def one_by_one(terms: np.ndarray) -> np.float32:
    total = np.float32(0)
    for term in terms.astype(np.float32):
        total = np.float32(total + term)
    return total


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 5000])
def test_each_order_gives_the_sum(count: int) -> None:
    terms = uniform(count)
    for order in ORDERS:
        assert float(sum_in_order(order, 2)(terms)) == pytest.approx(terms.sum(), rel=1e-4)


def test_a_sequence_adds_each_term_to_the_sum_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(float32_sums, "BLOCK", 64)
    terms = uniform(5000, 3)
    assert in_sequence(terms).tolist() == [one_by_one(column) for column in terms.T]


@pytest.mark.parametrize("count", [4, 8, 32])
def test_lanes_are_added_before_the_terms_that_are_left(count: int) -> None:
    terms, whole = uniform(5023), 5023 // count * count
    lanes = [one_by_one(terms[lane:whole:count]) for lane in range(count)]
    assert in_lanes(terms, count) == one_by_one(np.array([*lanes, *terms[whole:]]))


def test_each_thread_takes_its_share_and_no_less_than_a_grain() -> None:
    terms = uniform(100_000)
    assert in_threads(terms, 2) == one_by_one(np.array([one_by_one(terms[:50_000]), one_by_one(terms[50_000:])]))
    assert in_threads(terms[:32768], 2) == in_sequence(terms[:32768])


def test_pairs_lose_next_to_nothing() -> None:
    terms = np.full(100_000, np.float32(0.1))
    right = float(terms[0].astype(np.float64) * len(terms))
    assert abs(float(in_pairs(terms)) / right - 1) < 2e-7
    assert abs(float(in_sequence(terms)) / right - 1) > 1e-5
