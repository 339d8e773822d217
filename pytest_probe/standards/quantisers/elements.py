"""How a quantiser rounds elements: x over the scale to the nearest number, ties to even, or something else that can be
named; and stochastic rounding, as a distribution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pytest_probe.numerics.dtypes import BoolArray, Float64Array, FloatFormat, float_format, round_to, widen
from pytest_probe.numerics.ulp import alike, truncated

# Bins of the probability to round up, each tested by itself, and standard errors beyond which a mean is off: a healthy
# quantiser is flagged once in 10^7 tests.
BINS, SIGMAS = 8, 5.5
# Fewest draws in a bin whose mean is as good as normal.
_FEW = 200


def nearest(values: Float64Array, form: FloatFormat, *, saturate: bool) -> Float64Array:
    """Rounded to nearest, ties to even; what lies beyond the largest number is that, or what the format puts there."""
    limited = np.clip(values, -form.max, form.max) if saturate else values
    return widen(round_to(limited, form.name))


def others(values: Float64Array, form: FloatFormat) -> Mapping[str, Float64Array]:
    """What quantisers do in place of that, by what is said of it."""
    limited = np.clip(values, -form.max, form.max)
    spacing = form.spacing(limited)
    away = np.copysign(np.floor(np.abs(limited) / spacing + 0.5) * spacing, limited)
    return {
        "truncate": widen(truncated(limited, np.dtype(round_to(limited, form.name).dtype))),
        "round ties away from zero": np.clip(away, -form.max, form.max),
        "are not saturated": nearest(values, form, saturate=False),
        "are saturated": nearest(values, form, saturate=True),
        "are rounded to bfloat16 first": nearest(widen(round_to(values, "bfloat16")), form, saturate=True),
        "are rounded to float16 first": nearest(widen(round_to(limited, "float16")), form, saturate=True),
        "have the other sign": -nearest(values, form, saturate=True),
    }


def right(
    found: Float64Array, values: Float64Array, form: FloatFormat, *, saturate: bool, near: Float64Array
) -> BoolArray:
    """Where elements are right; near: the share of itself by which each quotient may be off."""
    moved = (values, values * (1 - near), values * (1 + near))
    return np.asarray(np.logical_or.reduce([alike(found, nearest(each, form, saturate=saturate)) for each in moved]))


def neighbours(values: Float64Array, form: FloatFormat) -> tuple[Float64Array, Float64Array]:
    """The numbers of the format below and above each value, equal where it is one."""
    limited = np.clip(values, -form.max, form.max)
    spacing = form.spacing(limited)
    below = np.floor(limited / spacing) * spacing
    above = np.ceil(limited / spacing) * spacing
    return below, np.minimum(above, form.max)


def biased(draws: Sequence[Float64Array], values: Float64Array, form: FloatFormat) -> str:
    """Why draws are no stochastic rounding; "" where they may be one. Each draw has one of the two neighbours already.

    The share that is rounded up is compared with the probability to do so, over all elements and in bins of that
    probability: a quantiser that rounds to nearest is right on average.
    """
    below, above = neighbours(values, form)
    between = above > below
    if not between.any():
        return ""
    chance = (np.clip(values, -form.max, form.max) - below)[between] / (above - below)[between]
    up = np.stack([draw[between] == above[between] for draw in draws]).mean(axis=0)
    bins = np.minimum((chance * BINS).astype(int), BINS - 1)
    for place in (None, *range(BINS)):
        chosen = np.ones(chance.shape, bool) if place is None else bins == place
        count = int(np.count_nonzero(chosen)) * len(draws)
        if count < _FEW:
            continue
        wanted, found = float(chance[chosen].mean()), float(up[chosen].mean())
        error = np.sqrt(max(float((chance * (1 - chance))[chosen].mean()), 1e-12) / count)
        if abs(found - wanted) > SIGMAS * error:
            return f"{found:.1%} of {count:,} draws are rounded up, {wanted:.1%} by how near the upper number is"
    return ""


def format_of(name: str) -> FloatFormat:
    return float_format("float4_e2m1fn" if name == "float4_e2m1fn_x2" else name)
