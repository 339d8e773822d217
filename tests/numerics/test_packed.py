from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from pytest_probe.numerics.dtypes import PACKED, float_format, is_floating, numpy_dtype, widen
from pytest_probe.numerics.packed import is_packed, packed, unpacked
from pytest_probe.numerics.ulp import ulp

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


@pytest.mark.parametrize("name", LAYOUTS)
def test_an_ulp_is_the_distance_to_the_next_number(name: str) -> None:
    codes = np.arange(16 if name == "float4_e2m1fn" else 256, dtype=np.uint8)
    values = np.sort(widen(codes.view(numpy_dtype(name))))
    values = values[np.isfinite(values) & (values > 0)]
    assert np.array_equal(ulp(values[:-1], name), np.diff(values))
    limits = float_format(name)
    assert (values[0], values[-1]) == (limits.smallest, limits.max)


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
