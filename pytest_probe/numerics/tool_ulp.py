"""Units in the last place as msprobe and its kin count them, for their standards; our own are in ulp.py.

Their unit is 2^(e - mantissa bits) with e = floor(log2 |expected|), at least the smallest normal's, and e = 0 where
expected is zero: an error beside zero counts as if beside 1.0. NaN and inf spread. Here e is exact; log2 in the
reference's dtype, as they take it, now and then gives the next e for a value just below a power of two.
"""

from __future__ import annotations

import numpy as np

from pytest_probe.numerics.dtypes import Float64Array, FloatFormat, binades

# Powers of two, as msprobe 26 takes them: nothing counts as smaller, and what is added keeps a logarithm from zero.
FLOAT8_LEAST_EXPONENT = -22.0
FLOAT8_TINY = 2.0**-1000


def powers(values: Float64Array, layout: FloatFormat, out: Float64Array, least: float = 0.0) -> Float64Array:
    """2^e of each reference value, written to `out`: 1 where it is zero, inf where it is NaN or inf. No magnitude is
    below `least`."""
    binades(values, out)
    if not least >= 2.0**layout.min_exponent:
        # The binade of zero is 0.
        np.add(out, values == 0, out=out)
        np.maximum(out, 2.0**layout.min_exponent, out=out)
    return out


def float8_distance(actual: Float64Array, expected: Float64Array) -> Float64Array:
    """Signed ULP of float8 outputs by msprobe 26: 3 mantissa bits where |e| <= 3, 2 to 7, 1 to 15, and beyond that the
    difference of signed log2. |expected| counts as at least 2^-22."""
    exponents = np.maximum(np.log2(np.abs(expected) + FLOAT8_TINY), FLOAT8_LEAST_EXPONENT)
    whole: Float64Array = np.floor(exponents)
    bits = np.select([np.abs(whole) <= 3, np.abs(whole) <= 7, np.abs(whole) <= 15], [3.0, 2.0, 1.0])
    scaled: Float64Array = (actual - expected) * np.exp2(bits - whole)
    signed = np.where(actual >= 0, 1.0, -1.0) * np.log2(np.abs(actual) + FLOAT8_TINY)
    return np.asarray(np.where(bits == 0, signed - np.where(expected >= 0, 1.0, -1.0) * exponents, scaled))
