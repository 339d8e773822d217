"""What the errors of many elements, or of several draws, have in common: a mean shift, or a mean factor."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from pytest_probe.numerics import allowed_scale
from pytest_probe.numerics.allowed_scale import root_mean_square
from pytest_probe.numerics.dtypes import AnyArray, widen
from pytest_probe.numerics.statistics import groups_of_equal, has_distinct

# A t-value of a mean shift: small where one element rounds to the other side, large where a fault shifts all.
BIAS_T = 10.0
# Limits for the mean error of several draws, in standard deviations of one draw. Rounding in eight draws
# has a third; the rest is room. Eight draws estimate the deviation of one element badly, hence 16.
COMMON_RMS = 2.0
COMMON_LARGEST = 16.0
# Distinct values. The rounding of fewer has a mean of its own: products of constants all round to the same side.
BIAS_DISTINCT = 32


def scatters(errors: AnyArray) -> bool:
    """Do samples of an output's errors, along the first axis, scatter more than they have in common? Of rounding eight
    have a third of their scatter in common; single elements, whose scatter eight samples estimate badly, more.

    With m the mean and s the standard deviation of each element's samples: RMS(m) <= 2 RMS(s), and in each element
    |m| <= 16 max(s, c RMS(s)).
    """
    with np.errstate(invalid="ignore", over="ignore"):
        common, scatter = np.abs(errors.mean(axis=0)), np.abs(errors.std(axis=0, ddof=1))
    usable = np.isfinite(common) & np.isfinite(scatter)
    common, scatter = common[usable], scatter[usable]
    usual = root_mean_square(scatter)
    if root_mean_square(common) > COMMON_RMS * usual:
        return False
    return bool((common <= COMMON_LARGEST * np.maximum(scatter, allowed_scale.RMS_SHARE * usual)).all())


class Bias(Struct, frozen=True):
    """A mean shift against the correctly rounded reference: effect |m| in units of the allowed scale, and its t-value,
    |m| sqrt(n) / s for n values of mean m and standard deviation s."""

    effect: float
    t: float

    def beyond(self, limit: float) -> bool:
        return self.effect > limit and self.t > BIAS_T


def biases(
    actual: AnyArray, rounded: AnyArray, center: AnyArray, expected: AnyArray, allowed: AnyArray
) -> tuple[Bias, ...]:
    """Is the output shifted, or scaled, on average? One Bias for the plain shift, (actual - rounded) / A, and one for
    that away from zero, the same times the sign of R.

    rounded: center, the reference or what the output was measured against, correctly rounded to the output's dtype,
    since plain rounding errors of few distinct values have a mean of their own. allowed: A. Empty where fewer than 32
    distinct rounded values are there. Equal elements count as one: a kernel makes the same error for all copies of a
    value (rows of padding). So do elements that rounding moves by the same: one error that they share takes all of them
    to their other neighbour, as the error of a row's sum does in log_softmax, where logits are whole numbers.
    """
    wide = widen(rounded)
    usable = np.isfinite(wide) & np.isfinite(allowed) & np.isfinite(widen(actual))
    with np.errstate(invalid="ignore", over="ignore"):
        shift = ((widen(actual) - wide) / allowed)[usable]
    # Few distinct values have rounding errors of few kinds, whose mean is not zero.
    wide = wide[usable]
    if not shift.any() or not has_distinct(wide, BIAS_DISTINCT):
        return ()
    with np.errstate(over="ignore"):
        # Distinct in float32: a reference's last bits differ from row to row.
        values = expected[usable].astype(np.float32)
        first, which = groups_of_equal(values)
        values, rests = values[first], (center[usable] - wide)[first].astype(np.float32)
    shift = _means(shift, which)
    # A reference that is a number of the dtype has no neighbour to which one error takes it.
    kinds, which = groups_of_equal(np.where(rests == 0, np.nan, rests))
    if kinds.size < BIAS_DISTINCT:
        return ()
    return _bias(_means(shift, which)), _bias(_means(shift * np.sign(values), which))


def _means(values: AnyArray, groups: AnyArray) -> AnyArray:
    """The mean of each group, groups numbered from 0."""
    return np.asarray(np.bincount(groups, weights=values) / np.bincount(groups))


def _bias(values: AnyArray) -> Bias:
    mean, deviation = abs(float(values.mean())), float(values.std())
    return Bias(mean, mean / deviation * values.size**0.5 if deviation else np.inf)
