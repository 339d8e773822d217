"""What the tools of the field call small, close and a unit in the last place (ULP). Our own ULP is in dtypes.py."""

from __future__ import annotations

from typing import Literal

import numpy as np
from msgspec import Struct

from pytest_probe.numerics.dtypes import Float64Array, FloatFormat, binades


class Convention(Struct, frozen=True, forbid_unknown_fields=True):
    """What a tool calls small, close and a unit in the last place. Thresholds are absolute numbers in the output's own
    unit, unless stated otherwise.

    small_value: |expected| at most this, with both sides finite, is small; the other finite elements are normal. None:
    the tool knows no small values, all elements are normal, NaN and inf among them, and metrics of small values are
    None.
    small_atol: a small value's |actual - expected| beyond this is an error in small_value_error_ratio.
    absolute_atol: the same in abs_error_ratio (msprobe from 1.2.2 on has another threshold for each of the two).
    rtol: relative error beyond which an element counts in rel_error_ratio and inf_nan_error_ratio; both are None
    where it is.
    eps: added to |expected| in the denominators of relative errors: everywhere, or only where expected is zero.
    rmse_damping: msprobe's c in sqrt(mean(err^2) * (N / (N - masked + c) + c)); 0 for the plain mean of what is left.
    zero: a side whose largest magnitude is at most this has no cosine.
    cosine_offset: what MindSpore's checker adds to numerator and denominator of the cosine; it is then never blank.
    alike: NaN against NaN and inf against the same inf are no error, one alone is an infinite error, and neither takes
    part in cosine and RMSE; inf_nan_error_ratio is then the share of those alone among all NaN and inf, whatever rtol
    is. Otherwise they spread as in plain arithmetic: the maximum and the cosine become NaN.
    ulp: "own", the spacing of the output's format at the reference; "exponent", the peers' 2^(floor(log2 |expected|) -
    mantissa bits), which counts zero as 1.0 (see `powers`); None for tools without.
    ulp_threshold: ULPs, beyond which an element counts in ulp_over_ratio.
    widens_bfloat16: the tool turns bfloat16 into float32 first, and float32 is what error balance and finiteness round
    the reference to.
    """

    small_value: float | None = None
    small_atol: float = 0.0
    absolute_atol: float = 0.0
    rtol: float | None = None
    eps: float = 0.0
    eps_at: Literal["all", "zeros"] = "all"
    rmse_damping: float = 0.0
    zero: float = 0.0
    cosine_offset: float = 0.0
    alike: bool = False
    ulp: Literal["own", "exponent"] | None = None
    ulp_threshold: float = 1.0
    widens_bfloat16: bool = False


# Their unit is 2^(e - mantissa bits) with e = floor(log2 |expected|), at least the smallest normal's, and e = 0 where
# expected is zero: an error at zero counts as if at 1.0. NaN and inf spread. Here e is exact. The tools take log2 in
# the reference's dtype, which may give the next e for a value just below a power of two.

# msprobe 26: the least exponent of a float8 value, and what it adds before a logarithm.
_FLOAT8_LEAST_EXPONENT = -22.0
_FLOAT8_TINY = 2.0**-1000


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
    exponents = np.maximum(np.log2(np.abs(expected) + _FLOAT8_TINY), _FLOAT8_LEAST_EXPONENT)
    whole: Float64Array = np.floor(exponents)
    bits = np.select([np.abs(whole) <= 3, np.abs(whole) <= 7, np.abs(whole) <= 15], [3.0, 2.0, 1.0])
    scaled: Float64Array = (actual - expected) * np.exp2(bits - whole)
    signed = np.where(actual >= 0, 1.0, -1.0) * np.log2(np.abs(actual) + _FLOAT8_TINY)
    return np.asarray(np.where(bits == 0, signed - np.where(expected >= 0, 1.0, -1.0) * exponents, scaled))
