from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_probe.numerics.dtypes import float_format, numpy_dtype, round_to, ulp, ulp_distance, widen

FLOATS = [
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
]
names = st.sampled_from(FLOATS)
finite = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize("name", [*FLOATS[2:], "float8_e8m0fnu", "float4_e2m1fn"])
def test_ulp_is_the_step_to_the_next_number_of_the_dtype(name: str) -> None:
    bits = 8 * numpy_dtype(name).itemsize
    numbers = widen(np.arange(16 if name == "float4_e2m1fn" else 2**bits, dtype=f"uint{bits}").view(numpy_dtype(name)))
    numbers = np.unique(numbers[np.isfinite(numbers) & ((numbers > 0) | (numbers == 0))])
    assert numbers[-1] == float_format(name).max
    assert np.array_equal(ulp(numbers[:-1], name), np.diff(numbers))


@given(st.floats(0, (2 - 2**-22) * 2.0**127, width=32))  # beyond, NumPy has no next number
def test_ulp_of_float32_is_numpys_spacing(value: float) -> None:
    assert ulp(value, "float32") == float(np.spacing(np.float32(value)))


@given(finite)
def test_ulp_of_float64_is_the_standard_librarys(value: float) -> None:
    assert ulp(value, "float64") == math.ulp(value)


@given(names, finite, finite)
def test_ulp_is_monotone_in_the_magnitude(name: str, one: float, other: float) -> None:
    small, large = ulp(sorted([abs(one), abs(other)]), name)
    assert small <= large


@given(names, finite)
def test_ulp_and_distance_are_symmetric_in_sign(name: str, value: float) -> None:
    assert ulp(value, name) == ulp(-value, name)
    assert ulp_distance(value * 1.5, value, name) == ulp_distance(-value * 1.5, -value, name)


@pytest.mark.parametrize("name", FLOATS)
def test_ulp_is_exact_at_powers_of_two_and_right_below(name: str) -> None:
    layout = float_format(name)
    for exponent in range(layout.min_exponent + 1, math.frexp(layout.max)[1]):
        power = math.ldexp(1.0, exponent)
        assert ulp(power, name) == math.ldexp(1.0, exponent - layout.precision + 1)
        assert ulp(math.nextafter(power, 0), name) == math.ldexp(1.0, exponent - layout.precision)


@pytest.mark.parametrize("name", FLOATS)
def test_ulp_at_the_ends(name: str) -> None:
    layout = float_format(name)
    tiny = [0.0, -0.0, layout.smallest, layout.smallest / 8, 2.0**layout.min_exponent]
    assert ulp(tiny, name).tolist() == [layout.smallest] * 5
    huge = [layout.max, 1.7e308, -1.7e308]
    assert ulp(huge, name).tolist() == [2.0 ** (math.frexp(layout.max)[1] - layout.precision)] * 3
    assert np.isnan(ulp([math.inf, -math.inf, math.nan], name)).all()


@pytest.mark.parametrize(
    ("name", "actual", "reference", "expected"),
    [
        ("float32", 1.0, 1.0, 0.0),
        ("float32", 1 + 2**-23, 1.0, 1.0),
        ("float32", 1 - 2**-24, 1.0, 0.5),
        ("float32", 1.0, 1 - 2**-24, 1.0),
        ("float32", 0.0, 2.0**-149, 1.0),
        ("float32", -0.0, 0.0, 0.0),
        ("float16", 2.0**-24, 2.0**-26, 0.75),
        ("bfloat16", 1.0, 1.00390625, 0.5),
        ("bfloat16", -1.0, 1.0, 256.0),
        ("float8_e4m3fn", 1.125, 1.0, 1.0),
        ("float8_e5m2", 1.0, 1.375, 1.5),
        ("float64", 1.0, 1.0 + 2**-52, 1.0),
        ("float64", 1.7e308, -1.7e308, math.inf),
    ],
)
def test_distances(name: str, actual: float, reference: float, expected: float) -> None:
    assert float(ulp_distance(actual, reference, name)) == expected


@pytest.mark.parametrize(
    ("name", "actual", "reference", "expected"),
    [
        ("float32", math.inf, math.inf, 0.0),
        ("float32", -math.inf, math.inf, math.inf),
        ("float32", math.nan, math.nan, 0.0),
        ("float32", math.nan, 1.0, math.inf),
        ("float32", 1.0, math.nan, math.inf),
        ("float32", math.nan, math.inf, math.inf),
        ("float32", 3e38, math.inf, math.inf),
        ("float32", math.inf, 3.4e38, math.inf),
        ("float32", math.inf, 1e39, 0.0),
        ("float32", -math.inf, -1e39, 0.0),
        ("float32", -math.inf, 1e39, math.inf),
        ("float16", 65504.0, 65536.0, 1.0),
        ("float16", math.inf, 65505.0, 0.0),
        ("float16", math.nan, 1e6, math.inf),
        ("float8_e4m3fn", math.nan, 1e6, 0.0),
        ("float8_e4m3fn", math.nan, math.inf, 0.0),
        ("float8_e4m3fn", math.nan, 448.0, math.inf),
        ("float8_e4m3fn", 448.0, 512.0, 2.0),
    ],
)
def test_distances_of_nan_inf_and_overflow(name: str, actual: float, reference: float, expected: float) -> None:
    assert float(ulp_distance(actual, reference, name)) == expected
    beside_finite = ulp_distance([2.5, actual], [2.0, reference], name)
    assert beside_finite.tolist() == [0.5 / float(ulp(2.0, name)), expected]


@given(names, finite)
def test_the_correctly_rounded_value_is_within_half_an_ulp(name: str, value: float) -> None:
    assert ulp_distance(round_to(value, name), value, name) <= 0.5


@given(names, st.floats(), st.floats())
def test_distance_is_never_nan_nor_negative(name: str, actual: float, reference: float) -> None:
    assert ulp_distance(actual, reference, name) >= 0


def test_complex_takes_the_larger_part() -> None:
    actual = np.array([1 + 2**-23 + 4j, 1 + 4j, complex(math.inf, math.nan)], dtype=np.complex64)
    reference = np.array([1 + (4 + 2**-19) * 1j, 1 + 4j, complex(math.inf, math.nan)])
    assert ulp_distance(actual, reference, "complex64").tolist() == [4.0, 0.0, 0.0]
    assert ulp(reference[:2], "complex64").tolist() == [2.0**-21, 2.0**-21]
    assert np.isnan(ulp(np.array([complex(1, math.inf)]), "complex64")).all()


def test_any_shape_and_stride() -> None:
    grid = np.arange(12.0).reshape(3, 4)
    shifted = grid + 2.0**-20
    assert (
        ulp_distance(shifted.T[::2], grid.T[::2], "float32").tolist()
        == ulp_distance(shifted.T[::2].copy(), grid.T[::2].copy(), "float32").tolist()
    )
    assert ulp(np.empty((0, 2)), "float16").shape == (0, 2)
    assert ulp_distance(np.empty((0, 2)), np.empty((0, 2)), "float16").shape == (0, 2)
    scalar = ulp_distance(np.float32(1), np.float64(1), "float32")
    assert (type(scalar), scalar.shape) == (np.ndarray, ())


@pytest.mark.filterwarnings("error")
def test_no_warnings() -> None:
    values = np.array([math.nan, math.inf, -math.inf, 0.0, 1.7e308])
    with np.errstate(all="warn"):
        ulp_distance(values, values[::-1], "float64")
        ulp(values, "bfloat16")


def test_an_integer_dtype_has_no_ulp() -> None:
    with pytest.raises(ValueError, match="int32 is no floating dtype"):
        ulp([1.0], "int32")
