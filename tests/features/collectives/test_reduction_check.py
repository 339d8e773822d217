"""The rule for sums of several ranks: legitimate orders pass, faults that are larger than a rounding do not."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_probe.features.collectives.reduction_check import RankInputs, judge
from pytest_probe.numerics.dtypes import numpy_dtype, round_to, widen
from tests.features.collectives.cases import Case, cases, ring, tree, wide


def wrong(case: Case) -> bool:
    return bool(judge(case.actual, RankInputs(case.terms, "total"), named=False).reason) is not case.faulty


def test_every_case_is_judged_as_it_is() -> None:
    """One fault in a hundred may be missed: one that is hardly larger than a rounding. No healthy case is flagged."""
    found = list(cases())
    missed = [case for case in found if wrong(case)]
    assert [case.name for case in missed if not case.faulty] == []
    assert len(missed) <= sum(case.faulty for case in found) / 100
    assert min(sum(case.faulty for case in found), sum(not case.faulty for case in found)) >= 270


@pytest.mark.parametrize(
    ("make", "name"), [(ring, "ring in bfloat16"), (tree, "tree in bfloat16"), (wide, "float32 inside")]
)
def test_the_order_that_gives_the_bits_is_named(make: object, name: str) -> None:
    dtype, rng = numpy_dtype("bfloat16"), np.random.default_rng(0)
    terms = [round_to(rng.standard_normal(4096), dtype) for _ in range(8)]
    assert judge(round_to(make(terms, dtype), dtype), RankInputs(terms, "total")).order == name  # type: ignore[operator]


def test_a_sum_of_1024_ranks_in_bfloat16_stagnates_and_passes() -> None:
    """Beyond 256 a one is lost; the order that gives 256 is legitimate."""
    dtype = numpy_dtype("bfloat16")
    terms = [np.ones(64, dtype)] * 1024
    found = judge(np.full(64, 256, dtype), RankInputs(terms, "total"))
    assert (found.reason, found.order) == ("", "ring in bfloat16")
    assert not judge(np.full(64, 1024, dtype), RankInputs(terms, "total")).reason
    assert judge(np.full(64, 4096, dtype), RankInputs(terms, "total")).reason


def test_integers_and_extremes_have_one_result() -> None:
    terms = [np.arange(4, dtype=np.int32) * sign for sign in (1, -3)]
    assert not judge(np.array([0, -2, -4, -6], np.int32), RankInputs(terms, "total")).reason
    assert judge(np.array([0, -2, -4, -5], np.int32), RankInputs(terms, "total")).reason == (
        "1 of 4 elements differ, the first is 3: -5, not -6"
    )
    floats = [np.array([1.0, np.nan, -0.5], np.float32), np.array([2.0, 3.0, -1.0], np.float32)]
    assert not judge(np.array([2.0, 3.0, -0.5], np.float32), RankInputs(floats, "largest")).reason
    assert judge(np.array([2.0, 3.0, -1.0], np.float32), RankInputs(floats, "largest")).reason


@pytest.mark.parametrize("given", [np.inf, -np.inf, np.nan])
def test_infinities_and_nan_are_kept(given: float) -> None:
    terms = [np.array([given, 1.0, 2.0], np.float32), np.ones(3, np.float32)]
    right = np.array([given, 2.0, 3.0], np.float32)
    assert not judge(right, RankInputs(terms, "total")).reason
    for other in (0.0, -given if np.isinf(given) else np.inf):
        assert judge(np.array([other, 2.0, 3.0], np.float32), RankInputs(terms, "total")).reason


def test_overflow_on_the_way_is_legitimate_and_beyond_it_is_not() -> None:
    dtype = np.dtype(np.float16)
    terms = [np.array([60000, 1], dtype), np.array([60000, 1], dtype), np.array([-60000, 1], dtype)]
    assert not judge(np.array([np.inf, 3], dtype), RankInputs(terms, "total")).reason
    assert not judge(np.array([60000, 3], dtype), RankInputs(terms, "total")).reason
    assert judge(np.array([60000, np.inf], dtype), RankInputs(terms, "total")).reason


def test_a_mean_is_divided_before_or_behind() -> None:
    rng = np.random.default_rng(1)
    terms = [rng.standard_normal(1000).astype(np.float32) for _ in range(3)]
    before = sum(each / np.float32(3) for each in terms)
    behind = sum(terms) / np.float32(3)
    reciprocal = sum(each * np.float32(1 / 3) for each in terms)
    for right in (before, behind, reciprocal):
        assert not judge(np.asarray(right), RankInputs(terms, "average")).reason
    assert judge(np.asarray(sum(terms)), RankInputs(terms, "average")).reason


@pytest.mark.parametrize("ranks", [3, 5, 6, 7])
def test_a_reciprocal_in_bfloat16_is_legitimate(ranks: int) -> None:
    dtype, rng = numpy_dtype("bfloat16"), np.random.default_rng(ranks)
    terms = [round_to(rng.standard_normal(4096), dtype) for _ in range(ranks)]
    factor = widen(round_to(np.asarray(1 / ranks), dtype))
    scaled = [round_to(widen(each) * factor, dtype) for each in terms]
    assert not judge(round_to(ring(scaled, dtype), dtype), RankInputs(terms, "average")).reason
    assert judge(round_to(ring(scaled[1:] * 2, dtype), dtype), RankInputs(terms, "average")).reason


def test_a_device_that_flushes_small_numbers_passes() -> None:
    terms = [np.full(8, 2.0**-130, np.float32), np.full(8, 2.0**-128, np.float32)]
    assert not judge(np.zeros(8, np.float32), RankInputs(terms, "total")).reason


def test_complex_sums_are_judged() -> None:
    rng = np.random.default_rng(3)
    terms = [(rng.standard_normal(100) + 1j * rng.standard_normal(100)).astype(np.complex64) for _ in range(3)]
    right = np.asarray(sum(terms))
    assert not judge(right, RankInputs(terms, "total")).reason
    wrong = right.copy()
    wrong[4] *= 1.001
    assert judge(wrong, RankInputs(terms, "total")).reason


def test_a_product_of_ranks_is_judged() -> None:
    rng = np.random.default_rng(4)
    terms = [rng.standard_normal(100).astype(np.float32) for _ in range(5)]
    right = np.prod(terms, axis=0, dtype=np.float32)
    assert not judge(right, RankInputs(terms, "product")).reason
    assert judge(right * np.float32(1.0001), RankInputs(terms, "product")).reason
