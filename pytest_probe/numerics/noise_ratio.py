"""The noise rule in numbers: how far each element is from the reference, in units of what its precision explains.

Noise ratio of an element = max(0, |actual - R| - ulp(R) / 2) / A, without a unit. R is the float64 reference, the ulp
that of the output's dtype, and A = max(S, u |R|, c RMS(S), half the smallest subnormal number): S is the element's
largest distance from R in K perturbed runs, u the roundoff of the kernel's arithmetic, c = FLOOR, or 0 element by
element. actual, R, S and A have the output's shape. Limits are for the largest ratio and for the RMS of all.

The rule is in docs/standards.md, the evidence behind its constants in docs/evidence.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.numerics.arrays import BLOCK, PASS, in_blocks
from pytest_probe.numerics.dtypes import AnyArray, BoolArray, FloatFormat, float_format, widen
from pytest_probe.numerics.statistics import stable_order
from pytest_probe.numerics.ulp import alike, ulp

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
# c, the share of RMS(S). A convolution by FFT errs alike everywhere, also where the signal is empty and S is 0.
FLOOR = 0.5
# Share of the reference's RMS: less than any roundoff of float64, and more than what moved zeros leave.
UNMOVED = 2.0**-70
# Elements on either side, in the order of their arguments. Chosen: with none gelu's gradient fails in its tail; other
# numbers were not measured.
NEIGHBOURS = 8
# The factor between the magnitudes of neighbours' arguments: within a binade a kernel's unit is about the same.
NEAR = 2.0
# A t-value of a mean shift: small where one element rounds to the other side, large where a fault shifts all.
BIAS_T = 10.0
# The smallest normal float64: a scale where the processor flushes smaller ones.
TINY = 2.0**-1022
# Limits for the mean error of several draws, in standard deviations of one draw. Rounding in eight draws
# has a third; the rest is room. Eight draws estimate the deviation of one element badly, hence 16.
COMMON_RMS = 2.0
COMMON_LARGEST = 16.0
# Distinct values. The rounding of fewer has a mean of its own: products of constants all round to the same side.
BIAS_DISTINCT = 32


class Limits(Struct, frozen=True):
    """Largest and RMS noise ratio (without a unit, see `measure_noise`) that a healthy kernel stays below."""

    largest: float
    rms: float


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


class Poles(Struct, frozen=True):
    """The smallest magnitude of the numbers that runs have where the reference has none, of positive and of negative
    ones; inf where no run has such a number. A complex number counts by its modulus, as positive."""

    positive: AnyArray
    negative: AnyArray

    @classmethod
    def of(cls, run: AnyArray, expected: AnyArray) -> Poles | None:
        """The poles of one run; None where it has no number in place of an infinity or of NaN."""
        there = np.isfinite(run) & ~np.isfinite(expected)
        if not there.any():
            return None
        negative = there & (run < 0) if run.dtype.kind == "f" else np.zeros_like(there)
        size = np.abs(run)
        return cls(np.where(there & ~negative, size, np.inf), np.where(negative, size, np.inf))

    def joined(self, other: Poles | None) -> Poles:
        """The smaller of both, element by element."""
        if other is None:
            return self
        return Poles(np.minimum(self.positive, other.positive), np.minimum(self.negative, other.negative))


class Spread(Struct, frozen=True):
    """S of each element; where runs disagree on finiteness, one being finite and another not; where one of those is
    inf and where -inf (a complex number that is infinite counts as inf), and where NaN; and how large those are that
    are finite where the reference is not, None where none is."""

    size: AnyArray
    disagree: BoolArray
    above: BoolArray
    below: BoolArray
    lost: BoolArray
    poles: Poles | None = None

    @classmethod
    def of(cls, size: AnyArray) -> Spread:
        """S of elements that are finite in all runs."""
        none = np.zeros(size.shape, dtype=bool)
        return cls(size, none, none, none, none)

    def joined(self, other: Spread | None) -> Spread:
        """The larger of both, element by element."""
        if other is None:
            return self
        return Spread(
            np.maximum(self.size, other.size),
            self.disagree | other.disagree,
            self.above | other.above,
            self.below | other.below,
            self.lost | other.lost,
            other.poles if self.poles is None else self.poles.joined(other.poles),
        )

    def excuses(self, values: AnyArray) -> BoolArray:
        """Where values are infinities that a run has as well, of the same sign."""
        if np.iscomplexobj(values):
            return np.asarray(np.isinf(values) & self.above)
        return np.asarray((np.isposinf(values) & self.above) | (np.isneginf(values) & self.below))

    def explains(self, values: AnyArray, dtype: npt.DTypeLike) -> BoolArray:
        """Where values of a dtype are what runs have in place of the reference's infinity or NaN: NaN, an infinity of
        the sign that a run shows, or a number that is no smaller than the runs' numbers of its sign."""
        found = self.excuses(values) | (np.isnan(values) & self.lost)
        if self.poles is None:
            return np.asarray(found)
        form = float_format(dtype)
        # The output is rounded once, and some devices have the largest number for what overflows.
        rounded = 1 - 2 * form.roundoff
        negative = values < 0 if values.dtype.kind == "f" else np.zeros(values.shape, dtype=bool)
        least = np.where(negative, self.poles.negative, self.poles.positive)
        large = np.abs(values) >= np.minimum(least, form.max) * rounded
        # Where a run gives zero, growth explains no infinity.
        grows = np.isfinite(least) & ((least > 0) | ~np.isinf(values))
        return np.asarray(found | (grows & large))


class _Share(Struct, frozen=True):
    """c RMS(S), and what those are granted that are zero in the reference and move by no more than `unmoved`; None:
    the same."""

    usual: float
    still: float | None = None
    unmoved: float = 0.0


def spread_of(runs: Iterable[AnyArray], expected: AnyArray, dtype: npt.DTypeLike) -> Spread | None:
    """S, the largest deviation from the reference of perturbed runs that are finite where it is; None without runs.

    Where the reference is beyond the range of dtype, the output's, only what falls back into the range deviates.
    """
    return _widest((_distance(run, expected, dtype), run, expected) for run in runs)


def among(runs: list[AnyArray], dtype: npt.DTypeLike) -> Spread | None:
    """The largest deviation between any two of the runs; None for fewer than two."""
    pairs = itertools.combinations(runs, 2)
    return _widest((_distance(second, first, dtype), second, first) for first, second in pairs)


def _widest(distances: Iterable[tuple[AnyArray, AnyArray, AnyArray]]) -> Spread | None:
    found = None
    for distance, run, other in distances:
        disagree = np.isnan(distance)
        spread = Spread.of(distance)
        if disagree.any():
            infinite = np.isinf(run) & disagree
            below = infinite & (run < 0) if run.dtype.kind == "f" else np.zeros_like(infinite)
            lost = np.isnan(run) & disagree
            size, poles = np.where(disagree, 0.0, distance), Poles.of(run, other)
            spread = Spread(size, disagree, infinite & ~below, below, lost, poles)
        found = spread.joined(found)
    return found


def nearest_run(actual: AnyArray, runs: list[AnyArray]) -> AnyArray:
    """For each element, the runs' value that is nearest to the actual one; inf and NaN are nearest to themselves."""
    found, wide = runs[0], widen(actual)
    with np.errstate(invalid="ignore"):
        for run in runs[1:]:
            closer = alike(run, wide) | (np.abs(wide - run) < np.abs(wide - found))
            found = np.where(closer & (found != wide), run, found)
    return found


def scale(
    expected: AnyArray,
    spread: Spread | None,
    *,
    dtype: npt.DTypeLike,
    roundoff: float,
    floor: float,
    still: float = math.inf,
    weights: AnyArray | None = None,
) -> AnyArray:
    """A, the allowed scale of each element: max(S, u_c |R|, c RMS(S), smallest subnormal / 2); NaN where R is.

    floor: c; still: what elements are granted that are zero in the reference and in every run, as what a mask hides, in
    units of the reference's RMS; inf: c, as all others. weights: how many elements of a whole each stands for.
    """
    share = _share(expected, spread, floor, still, weights)
    size = None if spread is None else spread.size
    return _allowed(expected, size, share, dtype=dtype, roundoff=roundoff)


def _share(
    expected: AnyArray, spread: Spread | None, floor: float, still: float, weights: AnyArray | None
) -> _Share | None:
    """The part of the allowed scale that every element gets from the other elements."""
    if spread is None or not floor:
        return None
    share = floor * root_mean_square(spread.size, weights)
    if still == math.inf:
        return _Share(share)
    finite = np.isfinite(expected)
    rms = root_mean_square(np.abs(expected[finite]), None if weights is None else weights[finite])
    return _Share(share, still * rms, UNMOVED * rms)


def least_allowed(form: FloatFormat) -> float:
    """What every element is granted."""
    return form.smallest / 2 or form.smallest or TINY  # nothing is half of float64's, which may itself be flushed


def _allowed(
    expected: AnyArray, size: AnyArray | None, share: _Share | None, *, dtype: npt.DTypeLike, roundoff: float
) -> AnyArray:
    form = float_format(dtype)
    allowed = np.maximum(roundoff * np.minimum(np.abs(expected), form.max), least_allowed(form))
    if size is not None:
        allowed = np.maximum(allowed, size)
    if size is not None and share is not None:
        granted: Any = share.usual
        if share.still is not None:
            granted = np.where((expected == 0) & (size <= share.unmoved), share.still, share.usual)
        allowed = np.maximum(allowed, granted)
    return np.asarray(allowed)


def root_mean_square(values: AnyArray, weights: AnyArray | None = None) -> float:
    """The RMS of finite, non-negative values, without overflow; 0 without any. weights: how many values of a
    whole each stands for, None: as many as any other."""
    largest = float(values.max(initial=0.0))
    if not largest:
        return 0.0
    squares = (values / largest) ** 2
    return largest * float(np.sqrt(np.mean(squares) if weights is None else np.average(squares, weights=weights)))


def pooled(spread: Spread, order: AnyArray) -> Spread:
    """The largest spread among each element's nearest 2 x 8 in `order` (same shape), of those within twice or half of
    it: what is a unit of 3,000 is none of 0.02.

    Few runs of a kernel that errs by whole units may agree by chance in an element; its neighbours show the unit.
    """
    size = spread.size
    if size.size < 2:
        return spread
    # Sorted, elements with similar arguments are neighbours, wherever they are in the tensor.
    ranks = stable_order(order)
    sizes, values = size.reshape(-1)[ranks], np.abs(order.reshape(-1)[ranks])
    largest = sizes.copy()
    for away in range(1, min(NEIGHBOURS, size.size - 1) + 1):
        low, high = values[:-away], values[away:]
        alike = (low <= NEAR * high) & (high <= NEAR * low)
        np.maximum(largest[away:], sizes[:-away], out=largest[away:], where=alike)
        np.maximum(largest[:-away], sizes[away:], out=largest[:-away], where=alike)
    result = np.empty(size.size)
    result[ranks] = largest
    return replace(spread, size=result.reshape(size.shape))


def measure_noise(
    actual: AnyArray,
    expected: AnyArray,
    spread: Spread | None,
    *,
    dtype: npt.DTypeLike,
    roundoff: float,
    floor: float,
    still: float = math.inf,
    weights: AnyArray | None = None,
) -> Noise:
    """Noise ratios of an output.

    actual: what the device gave. expected: the float64 (complex128) reference R, same shape. spread: S, or None for
    none. dtype: in whose half ulp the output may be rounded. roundoff: u_c of the arithmetic inside. floor: c;
    still and weights as of `scale`.
    Ratio = max(0, |actual - R| - ulp(R) / 2) / A; inf where R is an infinity or NaN and actual is another value, unless
    a run has such a one as well.
    """
    share = _share(expected, spread, floor, still, weights)

    def ratios_of(actual: AnyArray, expected: AnyArray, size: AnyArray | None = None) -> AnyArray:
        wide = _settled(actual, expected, dtype)
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            error = _excess(wide, expected, dtype)
            ratios = error / _allowed(expected, size, share, dtype=dtype, roundoff=roundoff)
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


def _dot(first: AnyArray, second: AnyArray) -> float:
    """Of long vectors in pieces: the library would make it in threads of its own, which then wait in a loop and keep
    other threads of this process from their cores."""
    if first.size <= PASS:
        return float(np.dot(first, second))
    starts = range(0, first.size, BLOCK)
    return sum(float(np.dot(first[start : start + BLOCK], second[start : start + BLOCK])) for start in starts)


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
        rms = math.sqrt(_dot(flat, weighted) / moved) if np.isfinite(largest) else largest
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


def _distance(run: AnyArray, expected: AnyArray, dtype: npt.DTypeLike) -> AnyArray:
    """|run - expected|, less what expected is beyond the dtype's range; 0 where both are the same inf or both NaN, NaN
    where they disagree on finiteness."""
    return in_blocks(partial(_distance_of_block, dtype), run, expected)


def _distance_of_block(dtype: npt.DTypeLike, run: AnyArray, expected: AnyArray) -> AnyArray:
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(run.astype(expected.dtype, copy=False) - expected)
        beyond = np.abs(expected) - float_format(dtype).max
        finite = np.isfinite(distance)
        if (beyond > 0).any():
            distance = np.where(finite, np.maximum(distance - np.maximum(beyond, 0.0), 0.0), distance)
    if finite.all():
        return np.asarray(distance)
    return np.asarray(np.where(finite, distance, np.where(alike(run, expected), 0.0, np.nan)))


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
    return bool((common <= COMMON_LARGEST * np.maximum(scatter, FLOOR * usual)).all())


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
    if not shift.any() or np.unique(wide[usable]).size < BIAS_DISTINCT:
        return ()
    with np.errstate(over="ignore"):
        # Distinct in float32: a reference's last bits differ from row to row.
        values, first, which = np.unique(expected[usable].astype(np.float32), return_index=True, return_inverse=True)
        rests = (center[usable] - wide[usable])[first].astype(np.float32)
    shift = _means(shift, which)
    # A reference that is a number of the dtype has no neighbour to which one error takes it.
    kinds, which = np.unique(np.where(rests == 0, np.nan, rests), return_inverse=True, equal_nan=False)
    if kinds.size < BIAS_DISTINCT:
        return ()
    return _bias(_means(shift, which)), _bias(_means(shift * np.sign(values), which))


def _means(values: AnyArray, groups: AnyArray) -> AnyArray:
    """The mean of each group, groups numbered from 0."""
    groups = groups.ravel()
    return np.asarray(np.bincount(groups, weights=values) / np.bincount(groups))


def _bias(values: AnyArray) -> Bias:
    mean, deviation = abs(float(values.mean())), float(values.std())
    return Bias(mean, mean / deviation * values.size**0.5 if deviation else np.inf)
