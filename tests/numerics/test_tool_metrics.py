from __future__ import annotations

import math
import tracemalloc
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from pytest_probe.numerics.conventions import powers
from pytest_probe.numerics.dtypes import float_format, numpy_dtype, round_to
from pytest_probe.numerics.tool_metrics import Convention, Measures, measure
from pytest_probe.standards.tools.table import packaged
from pytest_probe.standards.tools.tool import limited
from tests.support.conventions import CONVENTIONS, own
from tests.support.naive_metrics import naive

FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64", "complex128")
DISCRETE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
INF, NAN = math.inf, math.nan


def same(found: Measures, wanted: Measures, relative: float = 1e-9) -> None:
    for field in Measures.__struct_fields__:
        mine, theirs = getattr(found, field), getattr(wanted, field)
        floor = 1e-13 if field == "cosine_distance" else 0.0
        assert (mine is None) == (theirs is None), (field, mine, theirs)
        if mine is not None:
            assert mine == pytest.approx(theirs, rel=relative, abs=floor, nan_ok=True), (field, mine, theirs)
            assert type(mine) in (int, float), field


def noisy(name: str, size: int, seed: int, special: bool) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """An output and its reference with everything in it: zeros, small and large values, NaN and inf on either side."""
    random = np.random.default_rng(seed)
    complexes = name.startswith("complex")
    expected = random.standard_normal(size) * 10.0 ** random.integers(-9, 5, size)
    if complexes:
        expected = expected + 1j * random.permutation(expected)
    expected[random.random(size) < 0.1] = 0
    actual = expected * (1 + random.standard_normal(size) * 10.0 ** random.integers(-8, 0, size))
    actual += (random.random(size) < 0.05) * 1e-4
    if special:
        values = np.array([NAN, INF, -INF, 1e39, -1e5])
        for side in (actual, expected):
            chosen = random.random(size) < 0.05
            side[chosen] = values[random.integers(0, len(values), int(chosen.sum()))]
        both = random.random(size) < 0.05
        actual[both] = expected[both]
        if complexes:
            expected.imag[random.random(size) < 0.02] = NAN
    with np.errstate(all="ignore"):
        return round_to(actual, name), expected


def test_a_difference_of_inf_in_one_part_and_nan_in_the_other_is_inf() -> None:
    rule = CONVENTIONS["mindspore"]("complex128")
    found = measure(np.array([complex(INF, NAN), 1.0]), np.array([1.0, 1.0 + 0j]), rule)
    assert (found.max_abs_error, found.rmse) == (INF, INF)


RULES = st.builds(
    Convention,
    small_value=st.sampled_from([None, 0.0, 1e-3, 10.0]),
    small_atol=st.sampled_from([0.0, 1e-4]),
    absolute_atol=st.sampled_from([0.0, 1e-5]),
    rtol=st.sampled_from([None, 0.0, 1e-3]),
    eps=st.sampled_from([0.0, 2.0**-52, 1.0]),
    eps_at=st.sampled_from(["all", "zeros"]),
    rmse_damping=st.sampled_from([0.0, 1e-4]),
    cosine_offset=st.sampled_from([0.0, 1e-8]),
    alike=st.booleans(),
    ulp=st.sampled_from(["own", "exponent", None]),
    ulp_threshold=st.sampled_from([1.0, 32.0]),
    widens_bfloat16=st.booleans(),
)


@settings(max_examples=500)
@given(
    name=st.sampled_from(FLOATS),
    convention=RULES | st.sampled_from(sorted(CONVENTIONS)),
    size=st.integers(1, 300),
    seed=st.integers(0, 2**32),
    special=st.booleans(),
    block=st.integers(1, 400),
)
def test_equals_the_plain_formulas(
    name: str, convention: Convention | str, size: int, seed: int, special: bool, block: int
) -> None:
    """By the convention of each family, and by any."""
    rule = CONVENTIONS[convention](name) if isinstance(convention, str) else convention
    actual, expected = noisy(name, size, seed, special)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pytest_probe.numerics.one_pass_totals.BLOCK", block)
        patch.setattr("pytest_probe.numerics.tool_metrics.BLOCK", block)
        found = measure(actual, expected, rule)
    same(found, naive(actual, expected, rule))


ACTUAL, EXPECTED = np.array([2.5, 3, 0.75, -0.375, 0.25], np.float32), np.array([2, 4, 0.5, -0.25, 0])
BY_HAND = Convention(small_value=0.5, small_atol=0.25, absolute_atol=0.125, rtol=0.25, ulp="own")


def test_every_metric_by_hand() -> None:
    # err 0.5 1 0.25 0.125 0.25, rel 1/4 1/4 1/2 1/2 inf; the last three are small.
    found = measure(ACTUAL, EXPECTED, BY_HAND)
    assert found.cosine_distance == pytest.approx(1 - 17.46875 / math.sqrt(16.015625 * 20.3125), rel=1e-14)
    assert found == Measures(
        count=5,
        actual_magnitude=3.0,
        expected_magnitude=4.0,
        cosine_distance=found.cosine_distance,
        max_abs_error=1.0,
        max_rel_error=0.25,
        mean_rel_error=0.25,
        rmse=math.sqrt(1.25 / 2),
        hundredth_ratio=0.0,
        thousandth_ratio=0.0,
        five_thousandth_ratio=0.0,
        ten_thousandth_ratio=0.0,
        small_value_error_ratio=0.0,
        error_balance=0.2,
        inf_nan_error_ratio=0.0,
        rel_error_ratio=0.0,
        abs_error_ratio=2 / 3,
        ulp_max=2.0**147,
        ulp_mean=(2.0**21 + 2.0**21 + 2.0**22 + 2.0**22 + 2.0**147) / 5,
        ulp_over_ratio=1.0,
        binary_mismatch_ratio=1.0,
        nonfinite_mismatch=0,
    )


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"small_value": 0.49}, "small_value_error_ratio", 0.0),
        ({"small_value": 0.49}, "max_rel_error", 0.5),
        ({"small_value": 2.0}, "mean_rel_error", 0.25),
        ({"small_value": 2.0}, "rmse", 1.0),
        ({"small_value": 4.0}, "max_rel_error", 0.0),
        ({"small_value": 4.0}, "mean_rel_error", 0.0),
        ({"small_value": 4.0}, "rmse", 0.0),
        ({"small_value": 4.0}, "rel_error_ratio", 0.0),
        ({"small_value": -1.0}, "abs_error_ratio", 0.0),
        ({"small_value": None}, "abs_error_ratio", None),
        ({"small_value": None}, "max_rel_error", math.inf),
        ({"small_value": None}, "rmse", math.sqrt((0.25 + 1 + 0.0625 + 0.015625 + 0.0625) / 5)),
        ({"small_atol": 0.2}, "small_value_error_ratio", 2 / 3),
        ({"absolute_atol": 0.1}, "abs_error_ratio", 1.0),
        ({"rtol": 0.2}, "rel_error_ratio", 1.0),
        ({"rtol": None}, "rel_error_ratio", None),
        ({"rtol": None}, "inf_nan_error_ratio", None),
        ({"eps": 0.5}, "max_rel_error", 1 / 4.5),
        ({"small_value": None, "eps": 0.125, "eps_at": "zeros"}, "max_rel_error", 2.0),
        ({"rmse_damping": 1.0}, "rmse", math.sqrt(1.25 / 5 * (5 / 3 + 1))),
        ({"zero": 3.0}, "cosine_distance", None),
        ({"ulp": "exponent"}, "ulp_max", 2.0**22),
        ({"ulp": "exponent", "ulp_threshold": 2.0**21}, "ulp_over_ratio", 0.4),
        ({"ulp": None}, "ulp_mean", None),
    ],
)
def test_what_each_part_of_a_convention_changes(changes: dict[str, Any], field: str, value: float | None) -> None:
    found = getattr(measure(ACTUAL, EXPECTED, structs.replace(BY_HAND, **changes)), field)
    assert found == (None if value is None else pytest.approx(value, rel=1e-14))


def test_shares_count_what_is_strictly_nearer() -> None:
    expected = np.array([100.0, 100, 200, 1000, 10000, 1, 1, 1, 1, 1])
    actual = expected + np.array([1, 0.99, 1, 1, 1, 0, 0, 0, 0, 0])
    found = measure(actual, expected, Convention())
    assert (found.hundredth_ratio, found.five_thousandth_ratio) == (0.9, 0.7)
    assert (found.thousandth_ratio, found.ten_thousandth_ratio) == (0.6, 0.5)


@pytest.mark.parametrize(
    ("actual", "expected", "unlike"),
    [(NAN, NAN, 0), (INF, INF, 0), (-INF, INF, 1), (NAN, 1.0, 1), (1.0, NAN, 1), (INF, 1e39, 0), (3e38, INF, 1)],
)
def test_nan_and_inf_by_likeness_and_as_they_spread(actual: float, expected: float, unlike: int) -> None:
    given, wanted = np.array([1, actual, 2, 0], np.float32), np.array([1, expected, 2, 0])
    alike, spread = measure(given, wanted, own("float32")), measure(given, wanted, Convention(rtol=0.0))
    assert (alike.nonfinite_mismatch, alike.inf_nan_error_ratio) == (unlike, float(unlike))
    assert (alike.max_abs_error, alike.max_rel_error, alike.ulp_max) == ((INF,) * 3 if unlike else (0.0,) * 3)
    assert (alike.cosine_distance, alike.rmse) == (0.0, 0.0)
    assert alike.thousandth_ratio == (0.75 if unlike else 1.0)
    assert math.isnan(spread.cosine_distance or 0.0)
    plain = abs(float(np.float32(actual)) - expected)
    assert spread.max_abs_error == pytest.approx(plain, nan_ok=True)


@pytest.mark.parametrize(
    ("actual", "expected", "distance"),
    [
        ([1.0], [2.0], None),
        ([0.0, 0.0], [0.0, 0.0], None),
        ([0.0, 0.0], [1.0, 0.0], None),
        ([1.0, 0.0], [0.0, 0.0], None),
        ([1.0, 0.0], [0.0, 3.0], 1.0),
        ([1.0, 2.0], [-2.0, -4.0], 2.0),
        ([1e-200, 1e-200], [1e-200, 0.0], 1 - 0.5**0.5),
        ([1e200, 1e200], [1e200, 0.0], 1 - 0.5**0.5),
        ([3e-9, 4e-9], [3e9, 4e9], 0.0),
        ([1.0, 1e-12], [1.0, 0.0], 0.5e-24),
    ],
)
def test_cosine(actual: list[float], expected: list[float], distance: float | None) -> None:
    found = measure(np.array(actual), np.array(expected), Convention()).cosine_distance
    assert found == (None if distance is None else pytest.approx(distance, rel=1e-9, abs=1e-30))


def test_cosine_of_mindspore_is_never_blank() -> None:
    rule = CONVENTIONS["mindspore"]("float32")
    zeros = np.zeros(3, np.float32)
    assert measure(zeros, zeros, rule).cosine_distance == 0.0
    assert measure(np.ones(1, np.float32), np.zeros(1), rule).cosine_distance == 0.0
    found = measure(np.array([1e-4, 0]), np.array([0, 1e-4]), rule).cosine_distance
    assert found == pytest.approx(1 - 1e-8 / (1e-8 + 1e-8))


@pytest.mark.parametrize("name", DISCRETE)
@pytest.mark.parametrize("shape", [(), (4, 3)])
def test_integers_are_counted_exactly(name: str, shape: tuple[int, ...]) -> None:
    expected = np.ones(shape, numpy_dtype(name))
    actual = expected.copy()
    actual[(0,) * len(shape)] = 0
    assert measure(actual, expected, own("float32")) == Measures(
        count=expected.size,
        actual_magnitude=float(len(shape) > 0),
        expected_magnitude=1.0,
        max_abs_error=1,
        binary_mismatch_ratio=1 / expected.size,
    )


@pytest.mark.parametrize("name", [*FLOATS, *DISCRETE])
def test_nothing_and_a_scalar(name: str) -> None:
    dtype = numpy_dtype(name)
    rule = Convention(small_value=1e-6, rtol=1e-3, ulp="own")
    assert measure(np.empty((0, 3), dtype), np.empty((0, 3)), rule) == Measures(0)
    one = measure(np.ones((), dtype), np.ones(()), rule)
    assert (one.count, one.cosine_distance, one.max_abs_error, one.binary_mismatch_ratio) == (1, None, 0.0, 0.0)


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="shape"):
        measure(np.ones(3), np.ones((3, 1)), Convention())


@settings(max_examples=30)
@given(name=st.sampled_from(FLOATS), seed=st.integers(0, 2**32), step=st.integers(2, 3), order=st.booleans())
def test_strides_do_not_matter(name: str, seed: int, step: int, order: bool) -> None:
    rule = own(name)
    actual, expected = (side.reshape(12, 20)[::step, ::-1] for side in noisy(name, 240, seed, special=True))
    if order:
        actual, expected = actual.T, expected.T
    found = measure(actual, expected, rule)
    same(found, measure(np.ascontiguousarray(actual), np.ascontiguousarray(expected), rule), 1e-12)


@pytest.mark.parametrize("family", CONVENTIONS)
def test_many_blocks_in_constant_memory_and_without_threads_of_blas(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    actual, expected = noisy("float32", 400_001, 1, special=False)
    rule, longest = CONVENTIONS[family]("float32"), 0

    def watched(product: Any, first: Any, second: Any) -> Any:
        nonlocal longest
        longest = max(longest, first.shape[-1])
        return product(first, second)

    monkeypatch.setattr(np, "dot", partial(watched, np.dot))
    monkeypatch.setattr(np, "matmul", partial(watched, np.matmul))
    tracemalloc.start()
    found = measure(actual, expected, rule)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8e6  # one row of float64 for the whole is 3.2e6
    assert 0 < longest < 10_000
    same(found, naive(actual, expected, rule))


@pytest.mark.parametrize(
    ("family", "name", "numbers"),
    [
        ("msprobe-1.0", "float16", (1e-3, 1e-5, 1e-5, 1e-3)),
        ("msprobe-1.0", "bfloat16", (1e-3, 1e-5, 1e-5, 4e-3)),
        ("msprobe-1.0", "float32", (1e-6, 1e-9, 1e-9, 1e-6)),
        ("msprobe-26", "float16", (2**-10, 1e-16, 2**-16, 2**-10)),
        ("msprobe-26", "bfloat16", (2**-10, 1e-16, 1e-16, 2**-8)),
        ("msprobe-26", "float32", (2**-20, 2**-30, 2**-30, 2**-20)),
        ("paddleapex", "bfloat16", (1e-3, 1e-5, 1e-3, 4e-3)),
    ],
)
def test_limits_of_the_tools(family: str, name: str, numbers: tuple[float, ...]) -> None:
    rule = CONVENTIONS[family](name)
    assert (rule.small_value, rule.small_atol, rule.absolute_atol, rule.rtol) == numbers
    assert rule.eps == (2**-8 if name == "bfloat16" else 2**-52)
    assert CONVENTIONS[family](name, "float32").small_value == float(np.float32(numbers[0]))
    bound = {"float16": 2**-8, "bfloat16": 2**-7, "float32": 2**-11}[name]
    accumulated = limited(rule, packaged().limits["accumulative"][name])
    assert (accumulated.small_value, accumulated.absolute_atol, accumulated.rtol) == (1.0, bound, bound)


def test_peers_unit_of_zero_subnormals_and_below_a_power_of_two() -> None:
    values = np.array([0.0, 1e-45, 2.0**-126, 1 - 2.0**-24, 1.0, -1.5, 2.0])
    units = powers(values, float_format("float32"), np.empty(values.shape))
    assert units.tolist() == [1.0, 2.0**-126, 2.0**-126, 0.5, 1.0, 1.0, 2.0]
