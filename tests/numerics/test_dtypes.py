from __future__ import annotations

import math
from bisect import bisect_right
from fractions import Fraction
from functools import cache

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_probe.numerics.dtypes import (
    PACKED,
    float_format,
    is_complex,
    is_floating,
    is_packed,
    numpy_dtype,
    packed,
    round_to,
    round_to_spacing,
    unpacked,
    widen,
)

FLOAT8 = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]
ENUMERABLE = ["float16", "bfloat16", *FLOAT8, "float8_e8m0fnu", "float4_e2m1fn"]


@cache
def finite_numbers(name: str) -> list[float]:
    """All finite numbers of a format from +0 up; the index is the bit pattern."""
    dtype = numpy_dtype(name)
    bits = 4 if name == "float4_e2m1fn" else 8 * dtype.itemsize
    codes = np.arange(2**bits, dtype=f"uint{8 * dtype.itemsize}")
    values = widen(codes.view(dtype))
    half = values if name == "float8_e8m0fnu" else values[: len(values) // 2]
    return [float(value) for value in half[np.isfinite(half)]]


def rounded_exactly(value: float, name: str) -> float:
    """The oracle: nearest number of the format in exact arithmetic, ties to the even bit pattern."""
    numbers = finite_numbers(name)
    overflow = math.inf if name in ("float16", "bfloat16", "float8_e5m2") else math.nan
    overflow = 6.0 if name == "float4_e2m1fn" else overflow
    magnitude = Fraction(abs(value))
    below = bisect_right(numbers, abs(value)) - 1
    if below < 0:  # only in the format without zero
        return numbers[0] if 2 * magnitude > Fraction(numbers[0]) else math.nan
    step = Fraction(numbers[below]) - Fraction(numbers[below - 1])
    last = below == len(numbers) - 1
    upper = Fraction(numbers[below]) + step if last else Fraction(numbers[below + 1])
    if last and name == "float8_e8m0fnu":
        upper = 2 * Fraction(numbers[below])
    gap_below, gap_above = magnitude - Fraction(numbers[below]), upper - magnitude
    tie_goes_up = below % 2 == 1 or name == "float8_e8m0fnu"
    up = gap_above < gap_below or (gap_above == gap_below and tie_goes_up)
    result = numbers[below] if not up else overflow if last else float(upper)
    return math.copysign(result, value)


def near_ties(name: str) -> st.SearchStrategy[float]:
    """Midpoints between neighbours of the format, and the float64 numbers right beside them."""
    numbers = finite_numbers(name)

    def beside(code: int, towards: float, sign: float) -> float:
        above = numbers[code + 1] if code + 1 < len(numbers) else 2 * numbers[code] - numbers[code - 1]
        middle = (numbers[code] + above) / 2
        return sign * (middle if towards == 0 else math.nextafter(middle, towards))

    signs = [1.0] if name == "float8_e8m0fnu" else [1.0, -1.0]
    return st.builds(
        beside, st.integers(0, len(numbers) - 1), st.sampled_from([0.0, -math.inf, math.inf]), st.sampled_from(signs)
    )


def same(actual: float, expected: float) -> bool:
    return actual == expected or (math.isnan(actual) and math.isnan(expected))


@pytest.mark.parametrize("name", ENUMERABLE)
@given(data=st.data())
def test_round_to_agrees_with_exact_arithmetic_at_and_beside_ties(name: str, data: st.DataObject) -> None:
    value = data.draw(near_ties(name))
    assert same(float(round_to(value, name)), rounded_exactly(value, name))


@pytest.mark.parametrize("name", ENUMERABLE)
@given(data=st.data())
def test_round_to_agrees_with_exact_arithmetic_anywhere(name: str, data: st.DataObject) -> None:
    limit = 2 * float_format(name).max
    value = data.draw(st.floats(0, allow_infinity=False) | st.floats(0, limit))
    if name != "float8_e8m0fnu":
        value *= data.draw(st.sampled_from([1, -1]))
    assert same(float(round_to(value, name)), rounded_exactly(value, name))


@given(st.floats(allow_nan=False, allow_infinity=False, width=32), st.integers(-3, 3), st.booleans())
def test_round_to_float32_is_exact_at_and_beside_ties(start: float, steps: int, at_tie: bool) -> None:
    low = np.float32(start)
    with np.errstate(over="ignore"):
        high = np.nextafter(low, np.float32(np.inf))
    if not np.isfinite(high):
        return
    value = (float(low) + float(high)) / 2 if at_tie else float(low)
    for _ in range(abs(steps)):
        value = math.nextafter(value, math.copysign(math.inf, steps))
    to_low, to_high = abs(Fraction(value) - Fraction(float(low))), abs(Fraction(float(high)) - Fraction(value))
    even = low if int(low.view(np.uint32)) % 2 == 0 else high
    expected = even if to_low == to_high else low if to_low < to_high else high
    assert round_to(value, "float32") == expected


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_nearest_on_the_float64_grid_is_the_identity(value: float) -> None:
    values = np.array([value])
    assert round_to_spacing(values, float_format("float64").spacing(values)) == value


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("bfloat16", 1 + 2**-8 + 2**-40, 1.0078125),  # by way of float32 this is 1
        ("float16", 65519.999, 65504.0),
        ("float16", 65520.0, math.inf),
        ("float8_e4m3fn", math.inf, math.nan),
        ("float8_e5m2", -math.inf, -math.inf),
        ("float32", 1e300, math.inf),
    ],
)
def test_round_to_examples(name: str, value: float, expected: float) -> None:
    assert same(float(round_to(value, name)), expected)


def test_round_to_keeps_shape_zero_sign_and_dtype() -> None:
    result = round_to(np.array([[-0.0, 0.0]]), "bfloat16")
    assert (result.shape, result.dtype) == ((1, 2), ml_dtypes.bfloat16)
    assert np.signbit(result.astype(np.float64)).tolist() == [[True, False]]
    assert round_to(np.empty((0, 3)), "bfloat16").shape == (0, 3)
    assert round_to(np.float64(1.0), "bfloat16").shape == ()


def test_round_to_rounds_complex_parts_apart() -> None:
    result = round_to(np.array([1 + 2**-24 + 1j * (1 + 2**-23)]), "complex64")
    assert result.dtype == np.complex64
    assert result.tolist() == [1 + 1j * (1 + 2**-23)]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["float32", "complex64", *ENUMERABLE])
def test_rounding_and_widening_never_warn(name: str) -> None:
    with np.errstate(all="warn"):
        widen(round_to(np.array([1e300, -1e300, 5e-324, np.inf, np.nan, 0.0]), name))
        widen(np.array([0x7F800001], dtype=np.uint32).view(np.float32))


@pytest.mark.parametrize(
    ("name", "precision", "min_exponent", "largest", "smallest", "overflow"),
    [
        ("float64", 53, -1022, 1.7976931348623157e308, 2.0**-1074, math.inf),
        ("float32", 24, -126, (2 - 2**-23) * 2.0**127, 2.0**-149, math.inf),
        ("float16", 11, -14, 65504.0, 2.0**-24, math.inf),
        ("bfloat16", 8, -126, (2 - 2**-7) * 2.0**127, 2.0**-133, math.inf),
        ("float8_e4m3fn", 4, -6, 448.0, 2.0**-9, math.nan),
        ("float8_e5m2", 3, -14, 57344.0, 2.0**-16, math.inf),
        ("float8_e4m3fnuz", 4, -7, 240.0, 2.0**-10, math.nan),
        ("float8_e5m2fnuz", 3, -15, 57344.0, 2.0**-17, math.nan),
        ("float8_e8m0fnu", 1, -127, 2.0**127, 2.0**-127, math.nan),
    ],
)
def test_float_formats(
    name: str, precision: int, min_exponent: int, largest: float, smallest: float, overflow: float
) -> None:
    layout = float_format(name)
    found = (layout.name, layout.precision, layout.min_exponent, layout.max, layout.smallest, layout.roundoff)
    assert found == (name, precision, min_exponent, largest, smallest, 2.0**-precision)
    assert same(layout.overflow, overflow)
    assert float_format(numpy_dtype(name)) is layout


@pytest.mark.parametrize(
    ("dtype", "beyond"), [("float32", 2.0**128), ("float16", 2.0**16), ("float8_e4m3fn", 480.0), ("float64", math.inf)]
)
def test_the_number_behind_the_largest(dtype: str, beyond: float) -> None:
    assert float_format(dtype).beyond_max == beyond


def test_the_format_of_a_complex_dtype_is_that_of_its_parts() -> None:
    assert float_format("complex64") is float_format(np.float32)
    assert float_format(np.complex128) is float_format("float64")


@pytest.mark.parametrize("name", ["int64", "uint8", "bool"])
def test_integers_have_no_float_format(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is no floating dtype; known: float64, .*float8_e8m0fnu"):
        float_format(name)


def test_numpy_dtypes() -> None:
    names = ["float64", "float32", "complex64", "complex128", "int8", "int64", "uint64", "bool", *ENUMERABLE]
    assert [numpy_dtype(name).name for name in names] == names
    assert numpy_dtype("bfloat16") == ml_dtypes.bfloat16


@pytest.mark.parametrize("name", ["complex32", "half", "torch.float32", ""])
def test_an_unknown_dtype_names_the_known_ones(name: str) -> None:
    with pytest.raises(ValueError, match=f"no NumPy dtype for '{name}'; known: float64, .*bfloat16, .*bool"):
        numpy_dtype(name)


def test_kinds() -> None:
    floating = ["float64", "float32", *ENUMERABLE]
    assert all(is_floating(name) and is_floating(numpy_dtype(name)) for name in floating)
    assert not any(is_complex(name) for name in floating)
    assert is_complex("complex64")
    assert is_complex(np.complex128)
    assert not any(is_floating(name) for name in ["complex64", "int32", "bool"])


def test_widen_dtypes() -> None:
    already = np.array([1.0])
    assert widen(already) is already
    assert widen(np.array([1], dtype=">f8")).dtype.isnative
    assert widen(np.array([1 + 2j], dtype=np.complex64)).dtype == np.complex128
    assert widen(np.array([True, False])).tolist() == [1.0, 0.0]


# Sign, exponent and significand bits, bias, and the codes that are no number: of OCP's FP8 and MX, and of Graphcore's
# fnuz, where the code of -0 is NaN.
LAYOUTS = {
    "float8_e4m3fn": (1, 4, 3, 7, "0x7f 0xff"),
    "float8_e5m2": (1, 5, 2, 15, "0x7d 0x7e 0x7f 0xfd 0xfe 0xff"),
    "float8_e4m3fnuz": (1, 4, 3, 8, "0x80"),
    "float8_e5m2fnuz": (1, 5, 2, 16, "0x80"),
    "float8_e8m0fnu": (0, 8, 0, 127, "0xff"),
    "float4_e2m1fn": (1, 2, 1, 1, ""),
}
INFINITE = {("float8_e5m2", 0x7C): math.inf, ("float8_e5m2", 0xFC): -math.inf}


def by_definition(name: str, code: int) -> float:
    signs, exponents, places, bias, missing = LAYOUTS[name]
    if code in (int(text, 16) for text in missing.split()):
        return math.nan
    if (name, code) in INFINITE:
        return INFINITE[name, code]
    exponent, significand = (code >> places) % 2**exponents, code % 2**places
    hidden = 1 if exponent or name == "float8_e8m0fnu" else 0  # which has no subnormal numbers
    power = exponent - bias if hidden else 1 - bias
    magnitude = (hidden + Fraction(significand, 2**places)) * Fraction(2) ** power
    return math.copysign(float(magnitude), -1.0 if signs and code >> (exponents + places) else 1.0)


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_byte_is_the_number_of_its_bits(name: str) -> None:
    codes = np.arange(16 if name == "float4_e2m1fn" else 256, dtype=np.uint8)
    found = widen(codes.view(numpy_dtype(name)))
    expected = np.array([by_definition(name, int(code)) for code in codes])
    assert is_floating(name)
    assert np.array_equal(found, expected, equal_nan=True)
    zero = expected == 0
    assert np.array_equal(np.signbit(found[zero]), np.signbit(expected[zero]))


def test_the_first_of_two_numbers_is_in_the_low_bits() -> None:
    pairs = np.array([[0x21, 0xF7]], np.uint8).view(numpy_dtype(PACKED))
    assert is_packed(pairs)
    assert widen(unpacked(pairs)).tolist() == [[0.5, 1.0, 6.0, -6.0]]
    assert widen(unpacked(pairs, 0)).tolist() == [[0.5, 6.0], [1.0, -6.0]]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_packed_and_unpacked_undo_each_other(axis: int) -> None:
    pairs = np.arange(256, dtype=np.uint8).reshape(16, 16).view(numpy_dtype(PACKED))
    assert np.array_equal(packed(unpacked(pairs, axis), axis), pairs)


def test_an_odd_count_is_refused() -> None:
    with pytest.raises(ValueError, match="3 float4 numbers along axis 0, expected an even number"):
        packed(np.zeros((3, 2), ml_dtypes.float4_e2m1fn), 0)
