"""The noise rule in numbers: how far each element is from the reference, in units of what its precision explains, and
the largest and the RMS noise ratio that a healthy kernel stays below, by its terms and the number of elements.

Noise ratio of an element = max(0, |actual - R| - ulp(R) / 2) / A, without a unit. R is the float64 reference, the ulp
that of the output's dtype, A the allowed scale (allowed_scale.py). actual, R and A have the output's shape. Limits
are for the largest ratio and for the RMS of all.

The rule is in docs/standards.md, the evidence behind its constants in docs/evidence.md.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from pytest_probe.numerics import allowed_scale
from pytest_probe.numerics.allowed_scale import Spread
from pytest_probe.numerics.arrays import in_blocks
from pytest_probe.numerics.dtypes import AnyArray, BoolArray, float_format, ulp
from pytest_probe.numerics.metrics import dot

# Noise ratios, in units of the allowed scale. Healthy kernels reach 37 and 7 where terms are summed, 3 and 1 element by
# element; planted faults begin at 1,500 and 430 (docs/evidence.md). The limits lie between, nearer to the healthy.
LARGEST_LIMIT = 64.0
RMS_LIMIT = 8.0
ELEMENTWISE_LARGEST_LIMIT = 16.0
ELEMENTWISE_RMS_LIMIT = 2.0
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
EQUAL_TERMS_START, EQUAL_TERMS_CAP = 2 * RMS_LIMIT, 64.0
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
    usual = usual_limits(elementwise)
    if winograd:
        usual = Limits(usual.largest * WINOGRAD_LARGEST, usual.rms * WINOGRAD_RMS)
    return Limits(usual.largest * growth, usual.rms * growth * _small_sample(count))


def usual_limits(elementwise: bool) -> Limits:
    """Those of many elements, each a sum of few terms."""
    return Limits(ELEMENTWISE_LARGEST_LIMIT, ELEMENTWISE_RMS_LIMIT) if elementwise else Limits(LARGEST_LIMIT, RMS_LIMIT)


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


class Noise(Struct, frozen=True):
    """Noise ratios of one output. ratios has the output's shape; count is N, the number of non-zero elements;
    undecided counts elements that are not judged: the device disagrees with the reference on finiteness there, and so
    does a perturbed run."""

    ratios: AnyArray
    largest: float
    rms: float
    count: int
    undecided: int

    def within(self, limits: Limits) -> bool:
        return self.largest <= limits.largest and self.rms <= limits.rms


def measure_noise(
    actual: AnyArray,
    expected: AnyArray,
    spread: Spread | None,
    *,
    dtype: npt.DTypeLike,
    roundoff: float,
    share: float,
    still: float = math.inf,
    weights: AnyArray | None = None,
) -> Noise:
    """Noise ratios of an output.

    actual: what the device gave. expected: the float64 (complex128) reference R, same shape. spread: S, or None for
    none. dtype: in whose half ulp the output may be rounded. roundoff: u_c of the arithmetic inside. share,
    still and weights as of `scale`.
    Ratio = max(0, |actual - R| - ulp(R) / 2) / A; inf where R is an infinity or NaN and actual is another value, unless
    a run has such a one as well.
    """
    parts = allowed_scale.parts_of(expected, share, still, weights)

    def ratios_of(actual: AnyArray, expected: AnyArray, size: AnyArray | None = None) -> AnyArray:
        wide = _settled(actual, expected, dtype)
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            error = _excess(wide, expected, dtype)
            ratios = error / allowed_scale.allowed_by(expected, size, parts, dtype=dtype, roundoff=roundoff)
        lost, number = np.isnan(wide), np.isfinite(expected)
        if number.all() and not lost.any():
            return np.asarray(ratios)
        missing = np.isnan(expected)
        ratios = np.where(lost != missing, np.inf, np.where(missing, 0.0, ratios))
        return np.where(number | missing | _same_infinity(wide, expected, dtype), ratios, np.inf)

    ratios = in_blocks(ratios_of, actual, expected, *([] if spread is None else [spread.size]))
    undecided = 0
    if spread is not None and spread.disagree.any():
        wide = _settled(actual, expected, dtype)
        # Whatever runs do, NaN is an error where the dtype has a number, and so is inf of a sign that none has.
        excused = spread.excuses(wide)
        number = np.isfinite(expected)
        if not number.all():
            excused = np.where(number, excused, spread.disagree & spread.explains(wide, dtype))
        excused |= np.isnan(wide) & spread.lost & (np.abs(expected) > float_format(dtype).max)
        excused = excused & (ratios != 0)
        undecided = int(np.count_nonzero(excused))
        ratios = np.where(excused, 0.0, ratios)
    return noise_of_ratios(ratios, expected, undecided, weights)


def _same_infinity(wide: AnyArray, expected: AnyArray, dtype: npt.DTypeLike) -> BoolArray:
    """Where the infinite parts of the reference are infinite alike. A format of 8 bits may have its largest number for
    an infinity: that is how values are cast to it."""
    if np.iscomplexobj(expected):
        pairs = [(wide.real, expected.real), (wide.imag, expected.imag)]
        return np.asarray(np.logical_and(*(np.isfinite(right) | (found == right) for found, right in pairs)))
    saturates = np.dtype(dtype).itemsize == 1
    return np.asarray((wide == expected) | (saturates and wide == np.copysign(float_format(dtype).max, expected)))


def noise_of_ratios(ratios: AnyArray, expected: AnyArray, undecided: int, weights: AnyArray | None = None) -> Noise:
    """The noise whose ratios these are, for a reference of the same shape; weights as of `scale`."""
    if not ratios.size:
        return Noise(ratios, 0.0, 0.0, 0, 0)
    largest = float(ratios.max())
    nonzero = _count(expected != 0, weights)
    if largest == 0.0:
        return Noise(ratios, 0.0, 0.0, nonzero, undecided)
    moved = _count((expected != 0) | (ratios != 0), weights)
    flat = ratios.ravel()
    weighted = flat if weights is None else flat * weights.ravel()
    # The root of a sum of squares overflows long after the limits are passed; inf stays above them.
    with np.errstate(over="ignore"):
        rms = math.sqrt(dot(flat, weighted) / moved) if np.isfinite(largest) else largest
    return Noise(ratios, largest, rms, nonzero, undecided)


def _count(there: BoolArray, weights: AnyArray | None) -> int:
    return int(np.count_nonzero(there) if weights is None else np.sum(weights[there]))


def _settled(actual: AnyArray, expected: AnyArray, dtype: npt.DTypeLike) -> AnyArray:
    """actual, widened; where the dtype has no inf, the NaN in its place becomes a number beyond its range."""
    wide = actual.astype(expected.dtype)
    layout = float_format(dtype)
    if np.isnan(layout.overflow):
        beyond = np.isnan(wide) & (np.abs(expected) > layout.max)
        wide = np.where(beyond, np.copysign(np.inf, expected), wide)
    return np.asarray(wide)


def _excess(actual: AnyArray, expected: AnyArray, dtype: npt.DTypeLike) -> AnyArray:
    """max(0, |actual - expected| - half an ulp), where the reference is beyond the dtype's finite range counted from
    the largest finite value: inf of that sign is right there, and so is that value."""
    if np.iscomplexobj(expected):
        parts = [_gap(actual.real, expected.real, dtype), _gap(actual.imag, expected.imag, dtype)]
        half = np.hypot(parts[0][1], parts[1][1]) / 2
        return np.asarray(np.maximum(0.0, np.hypot(parts[0][0], parts[1][0]) - half))
    gap, unit = _gap(actual, expected, dtype)
    return np.asarray(np.maximum(0.0, gap - unit / 2))


def _gap(actual: AnyArray, expected: AnyArray, dtype: npt.DTypeLike) -> tuple[AnyArray, AnyArray]:
    """The distance of real values and the ulp; inf counts as the number that would follow the largest finite one."""
    form = float_format(dtype)
    largest, next_up = form.max, form.beyond_max
    numbers, clipped = np.clip(actual, -next_up, next_up), expected
    beyond = np.abs(expected) > largest
    if beyond.any():
        clipped = np.clip(expected, -largest, largest)
        numbers = np.where(beyond, np.clip(actual, -largest, largest), numbers)
    return np.abs(numbers - clipped), ulp(clipped, dtype)
