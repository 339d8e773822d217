"""The noise rule in numbers: how far each element is from the reference, in units of what its precision explains.

The rule and the evidence behind its constants are in docs/standards.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_probe.numerics.dtypes import AnyArray, Float64Array, float_format, widen
from pytest_probe.numerics.ulp import ulp

LARGEST = 64.0
RMS = 8.0
ELEMENTWISE_LARGEST = 16.0
ELEMENTWISE_RMS = 2.0
SMALL_SAMPLE = 7.0
FAN_IN_START = 1024
FAN_IN_CAP = 8.0
FLOOR = 0.5
NEIGHBOURS = 8
BIAS_T = 10.0
BIAS_DISTINCT = 32


@dataclass(frozen=True, slots=True)
class Limits:
    """Largest and RMS noise ratio that a healthy kernel stays below."""

    largest: float
    rms: float


@dataclass(frozen=True, slots=True)
class Noise:
    """Noise ratios of one output. ratios has the output's shape; count is N, the number of non-zero elements;
    undecided counts elements where perturbed runs disagree on finiteness, which are not judged."""

    ratios: AnyArray
    largest: float
    rms: float
    count: int
    undecided: int

    def within(self, limits: Limits) -> bool:
        return self.largest <= limits.largest and self.rms <= limits.rms


def limits(*, elementwise: bool, fan_in: int, count: int, factor: float = 1.0) -> Limits:
    """The limits for an output of `count` non-zero elements, each a sum of at most fan_in terms.

    The RMS of few elements scatters more: times 1 + 7 / sqrt(count). Beyond 1,024 terms both grow with the square
    root of the terms (sequential accumulation), at most 8 times, lest a mean 0.03 % wrong pass at 10^7 terms.
    """
    growth = min(FAN_IN_CAP, max(1.0, fan_in / FAN_IN_START) ** 0.5) * factor
    largest, rms = (ELEMENTWISE_LARGEST, ELEMENTWISE_RMS) if elementwise else (LARGEST, RMS)
    return Limits(largest * growth, rms * growth * (1 + SMALL_SAMPLE / max(count, 1) ** 0.5))


def scatter(runs: Iterable[AnyArray], expected: AnyArray) -> AnyArray | None:
    """S, the largest deviation of perturbed runs from the reference, element by element; None without runs.

    NaN where a run and the reference disagree on finiteness: undecided.
    """
    largest = None
    for run in runs:
        deviation = _distance(run, expected)
        largest = deviation if largest is None else np.maximum(largest, deviation)
    return largest


def among(runs: list[AnyArray]) -> AnyArray | None:
    """The largest deviation between any two of the runs; None for fewer than two."""
    pairs = [_distance(second, first) for index, first in enumerate(runs) for second in runs[index + 1 :]]
    return np.maximum.reduce(pairs) if pairs else None


def scale(
    expected: AnyArray, spread: AnyArray | None, *, dtype: npt.DTypeLike, roundoff: float, floor: float
) -> AnyArray:
    """A, the allowed scale of each element: max(S, u_c |R|, c RMS(S), smallest subnormal / 2); NaN where undecided."""
    form = float_format(dtype)
    allowed = np.maximum(roundoff * np.minimum(np.abs(expected), form.max), form.smallest / 2)
    if spread is not None:
        decided = spread[np.isfinite(spread)]
        rms = float(np.sqrt(np.mean(decided * decided))) if decided.size else 0.0
        allowed = np.maximum(allowed, np.maximum(spread, floor * rms))
    return np.asarray(allowed)


def pooled(spread: AnyArray, order: AnyArray) -> AnyArray:
    """The largest spread among each element's nearest 2 x 8 in `order` (same shape).

    Few runs of a kernel that errs by whole units may agree by chance in an element; its neighbours show the unit.
    """
    if spread.size < 2:
        return spread
    ranks = np.argsort(order, axis=None, kind="stable")
    padded = np.pad(spread.reshape(-1)[ranks], NEIGHBOURS, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * NEIGHBOURS + 1)
    result = np.empty(spread.size)
    result[ranks] = windows.max(axis=1)
    return result.reshape(spread.shape)


def measure(
    actual: AnyArray,
    expected: AnyArray,
    spread: AnyArray | None,
    *,
    dtype: npt.DTypeLike,
    roundoff: float,
    floor: float,
) -> Noise:
    """Noise ratios of an output.

    actual: what the device gave. expected: the float64 (complex128) reference R, same shape. spread: S, or None for
    none. dtype: in whose half ulp the output may be rounded. roundoff: u_c of the arithmetic inside. floor: c.
    Ratio = max(0, |actual - R| - ulp(R) / 2) / A.
    """
    wide = _settled(actual, expected, dtype)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        error = _excess(wide, expected, dtype)
        allowed = scale(expected, spread, dtype=dtype, roundoff=roundoff, floor=floor)
        ratios = np.asarray(error / allowed)
    unknown = np.isnan(allowed) if spread is not None else None
    undecided = 0
    if unknown is not None and unknown.any():
        undecided = int(np.count_nonzero(unknown))
        ratios = np.where(unknown, 0.0, ratios)
    wrong = np.isnan(wide) != np.isnan(expected)
    if unknown is not None:
        wrong &= ~unknown
    ratios = np.where(np.isnan(expected), 0.0, ratios)
    ratios = np.where(wrong, np.inf, ratios)
    return _summary(ratios, expected, undecided)


def _summary(ratios: AnyArray, expected: AnyArray, undecided: int) -> Noise:
    if not ratios.size:
        return Noise(ratios, 0.0, 0.0, 0, 0)
    largest = float(ratios.max())
    nonzero = int(np.count_nonzero(expected))
    if largest == 0.0:
        return Noise(ratios, 0.0, 0.0, nonzero, undecided)
    moved = int(np.count_nonzero((expected != 0) | (ratios != 0)))
    flat = ratios.ravel()
    with np.errstate(over="ignore"):
        rms = float(np.sqrt(np.dot(flat, flat) / moved)) if np.isfinite(largest) else largest
    return Noise(ratios, largest, rms, nonzero, undecided)


def _settled(actual: AnyArray, expected: AnyArray, dtype: npt.DTypeLike) -> AnyArray:
    """actual, widened; where the dtype has no inf, the NaN that stands for it becomes a number beyond its range."""
    wide = actual.astype(expected.dtype)
    layout = float_format(dtype)
    if np.isnan(layout.overflow):
        beyond = np.isnan(wide) & (np.abs(expected) > layout.max)
        wide = np.where(beyond, np.copysign(np.inf, expected), wide)
    return np.asarray(wide)


def _excess(actual: AnyArray, expected: AnyArray, dtype: npt.DTypeLike) -> AnyArray:
    """max(0, |actual - expected| - half an ulp), both clipped to the dtype's finite range: where the reference is
    beyond it, inf of that sign is right, and so is the largest finite value."""
    if np.iscomplexobj(expected):
        half = np.hypot(ulp(expected.real, dtype), ulp(expected.imag, dtype)) / 2
        apart = np.maximum(0.0, np.abs(actual - expected) - half)
        return np.asarray(np.where(actual == expected, 0.0, apart))
    largest = float_format(dtype).max
    clipped = np.clip(expected, -largest, largest)
    distance = np.abs(np.clip(actual, -largest, largest) - clipped)
    return np.asarray(np.maximum(0.0, distance - ulp(clipped, dtype) / 2))


def _distance(run: AnyArray, expected: AnyArray) -> AnyArray:
    """|run - expected|; 0 where both are the same inf or both NaN, NaN where they disagree on finiteness."""
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(run.astype(expected.dtype, copy=False) - expected)
    finite = np.isfinite(distance)
    if finite.all():
        return np.asarray(distance)
    same = (run == expected) | (np.isnan(run) & np.isnan(expected))
    return np.asarray(np.where(finite, distance, np.where(same, 0.0, np.nan)))


@dataclass(frozen=True, slots=True)
class Bias:
    """A mean shift against the correctly rounded reference, in units of the allowed scale, and its t-value."""

    effect: float
    t: float

    def beyond(self, limit: float) -> bool:
        return self.effect > limit and self.t > BIAS_T


def biases(actual: AnyArray, rounded: AnyArray, expected: AnyArray, allowed: AnyArray) -> tuple[Bias, ...]:
    """Is the output shifted, or scaled, on average? One Bias for the plain shift and one for that away from zero.

    rounded: the reference correctly rounded to the output's dtype, since plain rounding errors of few distinct values
    have a mean of their own. allowed: A. Empty where fewer than 32 distinct rounded values are there.
    """
    wide = widen(rounded)
    usable = np.isfinite(wide) & np.isfinite(allowed) & np.isfinite(widen(actual))
    with np.errstate(invalid="ignore", over="ignore"):
        shift = ((widen(actual) - wide) / allowed)[usable]
    if not shift.any() or np.unique(wide[usable]).size < BIAS_DISTINCT:
        return ()
    return _bias(shift), _bias(shift * np.sign(expected[usable]))


def _bias(values: AnyArray) -> Bias:
    mean, deviation = abs(float(values.mean())), float(values.std())
    return Bias(mean, mean / deviation * values.size**0.5 if deviation else np.inf)
