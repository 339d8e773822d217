"""The largest and the RMS noise ratio that a healthy kernel stays below, by its terms and the number of elements."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from pytest_probe.numerics.dtypes import AnyArray

# Noise ratios, in units of the allowed scale. Healthy kernels reach 37 and 7 where terms are summed, 3 and 1 element by
# element; planted faults begin at 1,500 and 430 (docs/evidence.md). The limits lie between, nearer to the healthy.
LARGEST = 64.0
RMS = 8.0
ELEMENTWISE_LARGEST = 16.0
ELEMENTWISE_RMS = 2.0
# Growth of the RMS limit, as a share of it, over the root of the number of elements: one sum of 1,000 terms one by one
# has an RMS of 9.96.
SMALL_SAMPLE = 7.0
# The same where chance alone is meant: the RMS of N normal errors is above 1 + 3.9 / sqrt(N) in less than one output
# of 10^6, whatever N is.
CHANCE = 3.9
# The most by which the RMS limit is multiplied where elements are copies: gelu of copies of -3 takes 1.4 times the
# limit, a healthy element alone reaches 3 noise scales.
COPIES_CAP = 2.0
# Terms of one sum. Sums of 1,000 terms one by one stay within the limits, sums of 16,384 do not.
FAN_IN_START = 1024
# The most by which the limits are multiplied, reached at 65,536 terms: beyond, a mean of a million that is 0.006 % too
# large would pass.
FAN_IN_CAP = 8.0
# Equal terms that are added one by one are rounded alike, and may lose half a roundoff each: so many make the RMS
# limit, and so much more is granted at most, lest a sum of 4,096 in which one counts a quarter more pass.
EQUAL_TERMS_START, EQUAL_TERMS_CAP = 2 * RMS, 64.0
# Factors of the limits for a convolution that may use Winograd's F4, which reaches 81 and 80 % of them.
WINOGRAD_LARGEST = 8.0
WINOGRAD_RMS = 4.0


class Limits(Struct, frozen=True):
    """Largest and RMS noise ratio (without a unit, see noise_ratio.py) that a healthy kernel stays below."""

    largest: float
    rms: float


def limits_for(
    *,
    elementwise: bool,
    fan_in: int,
    count: int,
    winograd: bool = False,
    factor: float = 1.0,
    equal_terms: bool = False,
) -> Limits:
    """The limits for an output of `count` non-zero elements, each a sum of at most fan_in terms.

    The RMS of few elements scatters more: times 1 + 7 / sqrt(count). Beyond 1,024 terms both grow with the square
    root of the terms (sequential accumulation), at most 8 times, lest a mean 0.03 % wrong pass at 10^7 terms; for
    equal terms with their number, at most 64 times. Winograd's F4 errs four times as much, and by one corner of its
    tiles eight times.
    """
    growth = min(FAN_IN_CAP, max(1.0, fan_in / FAN_IN_START) ** 0.5)
    if equal_terms:
        growth = max(growth, min(EQUAL_TERMS_CAP, fan_in / EQUAL_TERMS_START))
    growth *= factor
    largest, rms = (ELEMENTWISE_LARGEST, ELEMENTWISE_RMS) if elementwise else (LARGEST, RMS)
    if winograd:
        largest, rms = largest * WINOGRAD_LARGEST, rms * WINOGRAD_RMS
    return Limits(largest * growth, rms * growth * _small_sample(count))


def for_copies(limits: Limits, expected: AnyArray) -> Limits:
    """The limits of an output whose equal elements count as one: a kernel makes the same error for all copies of a
    value, so their errors do not average out.

    N is the number of elements with errors of their own: n^2 / sum n_i^2 of n elements of which n_i
    have the i-th value (Kish's effective sample size). The RMS limit is at most twice as large for it. Equal is what is
    so in float32: a reference's last bits differ.
    """
    values = expected[(expected != 0) & np.isfinite(expected)]
    if not values.size:
        return limits
    single = np.complex64 if np.iscomplexobj(values) else np.float32
    with np.errstate(over="ignore"):
        copies = np.unique(values.astype(single), return_counts=True)[1]
    own = values.size**2 / float(np.sum(copies.astype(np.float64) ** 2))
    growth = _small_sample(own) / _small_sample(int(np.count_nonzero(expected)))
    return Limits(limits.largest, limits.rms * min(COPIES_CAP, growth))


def for_correlated(limits: Limits, count: float, own: float) -> Limits:
    """The limits of an output of `count` non-zero elements whose errors move together, as if only `own` of them erred
    independently: the RMS limit is at least that of many elements, times `by_chance(own)`."""
    usual = limits.rms / _small_sample(count)
    return Limits(limits.largest, max(limits.rms, usual * by_chance(own)))


def by_chance(count: float) -> float:
    """The largest RMS of count normal errors, in units of their deviation, except in one output of 10^6:
    1 + 3.9 / sqrt(count)."""
    return float(1 + CHANCE / max(count, 1) ** 0.5)


def cap(ratios: AnyArray, limits: Limits) -> float:
    """The largest number to which ratios are to be cut, lest the largest or the RMS be above the limits: the largest x
    up to limits.largest with mean(min(ratio, x)^2) <= limits.rms^2."""
    squares = np.sort(np.minimum(ratios[np.isfinite(ratios)], limits.largest) ** 2)
    sums, allowed = np.cumsum(squares), limits.rms**2 * squares.size
    count = int(np.count_nonzero(sums + squares * np.arange(squares.size - 1, -1, -1) <= allowed))
    if count == squares.size:
        return limits.largest
    return float(np.sqrt((allowed - (sums[count - 1] if count else 0.0)) / (squares.size - count)))


def _small_sample(count: float) -> float:
    """The factor of the RMS limit for count elements."""
    return float(1 + SMALL_SAMPLE / max(count, 1) ** 0.5)
