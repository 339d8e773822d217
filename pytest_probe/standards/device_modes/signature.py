"""What errors look like: are they like samples of a mode's rounding, without a direction and a place, or the share of
what is lost where a device cuts?"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pytest_probe.model.comparison import Comparison
from pytest_probe.numerics import allowed_scale
from pytest_probe.numerics.allowed_scale import Spread
from pytest_probe.numerics.dtypes import AnyArray, BoolArray, is_complex, widen
from pytest_probe.numerics.rounding_signature import direction, place_of, size_of_most
from pytest_probe.standards.noise.summed_terms import summed_terms

# Samples of rounded operands: few, and where these do not explain an output as many as tell chance from a fault.
SAMPLES = (8, 16)
# How many times as large errors may be as those of samples, in RMS and mean: the first for few samples. The largest in
# units of the RMS, for few samples, and as a multiple of that of samples. Chosen: where there are many, chance gives
# more in less than one output of 10^5.
_SIZE, _OUTLYING = (1.25, 2.5), (6.0, 2.0)
# The share of the RMS scale that each element is granted: 16 samples seldom agree by chance.
_SHARED = 2.0**-10
# How often what samples lose an output may have lost.
MOST_LOST = 2.0
# Rounds in which the shares of several losses settle.
_ROUNDS = 16
# What one element leaves to others at least in deciding a factor.
_DECIDES = 1e-3


def unlike_samples(comparison: Comparison, samples: Sequence[AnyArray]) -> str:
    """Why errors are unlike samples of the mode's rounding: by their size, a direction or a place."""
    scaled = _scaled(comparison, samples)
    most, usual = _SIZE[len(scaled) > max(SAMPLES)], _largest_size(scaled[1:])
    size = allowed_scale.root_mean_square(scaled[0])
    if size > most * usual:
        return f"RMS {size:.3g} noise scales of the mode, its rounding gives {usual:.3g}"
    largest, *others = (float(np.abs(each).max()) for each in scaled)
    if largest > _farthest(scaled):
        return f"an element is off by {largest:.3g} noise scales of the mode, its rounding gives {max(others):.3g}"
    expected = parts(comparison.expected)
    values = np.where(np.isfinite(expected), expected, 0.0)
    directed = direction(scaled[0], scaled[1:], values, mean_of=most)
    return directed or place_of(scaled[0], scaled[1:], max(size, usual))


def outlying(comparison: Comparison, samples: Sequence[AnyArray]) -> BoolArray:
    """Elements of an output that are farther off than the mode's rounding gives, compared with samples of it."""
    scaled = _scaled(comparison, samples)
    return np.asarray(np.abs(scaled[0]) > _farthest([np.zeros(1), *scaled[1:]]))


def relative_size(comparison: Comparison, samples: Sequence[AnyArray]) -> float:
    """How large errors are compared with those of the mode's samples, in the middle: median |error| over median
    |sample| of the elements that a sample moves; inf where none is moved."""
    errors, *others = (np.abs(errors) for errors in _errors(comparison, samples))
    moved = np.maximum.reduce(others) > 0
    return float(np.median(errors[moved]) / np.median(np.stack(others)[:, moved])) if moved.any() else math.inf


def parts(values: AnyArray) -> AnyArray:
    """Real and imaginary parts apart."""
    return np.stack([values.real, values.imag], -1) if is_complex(values.dtype) else values


def _largest_size(samples: Sequence[AnyArray]) -> float:
    return max(allowed_scale.root_mean_square(np.abs(each)) for each in samples)


def _farthest(scaled: Sequence[AnyArray]) -> float:
    """How far an element may be off. What is more precise than the mode may err as that does in places, and what is
    less precise in all elements but the farthest may err more."""
    own, *others = map(size_of_most, scaled)
    size = _largest_size(scaled[1:]) * min(max(own / max(*others, 1e-300), 1.0), _SIZE[1])
    if len(others) < max(SAMPLES):
        return _OUTLYING[0] * size
    sizes = [np.abs(each) for each in scaled[1:]]
    tails = [float(each.max()) / max(allowed_scale.root_mean_square(each), 1e-300) for each in sizes]
    return _OUTLYING[1] * max(tails) * size


def _scaled(comparison: Comparison, samples: Sequence[AnyArray]) -> list[AnyArray]:
    """The errors of the output and of its samples in units of A; each sample is measured by the others.

    All samples of a product of two numbers may have the smaller one of |a + b| and |a - b| for operands' errors a, b:
    an element of n terms is granted the usual share of its value over sqrt(n) at least."""
    errors = _errors(comparison, samples)
    second, first = np.sort(np.abs(np.stack(errors[1:])), axis=0)[-2:]
    values = np.abs(parts(comparison.expected))
    moved = np.isfinite(values) & (values > 0) & (first > 0)
    usual = np.median(first[moved] / values[moved]) if moved.any() else 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        least = np.where(moved, values * usual / summed_terms(comparison).count ** 0.5, 0.0)
    second, first = np.maximum(second, least), np.maximum(first, least)
    # A, from the largest errors of samples.
    expected, dtype, roundoff = parts(comparison.expected), comparison.precision, comparison.roundoff
    own, others = (
        allowed_scale.scale(
            expected,
            Spread.of(size),
            dtype=dtype,
            roundoff=roundoff,
            share=_SHARED * allowed_scale.root_mean_square(size),
        )
        for size in (first, second)
    )
    return [errors[0] / own, *(each / np.where(np.abs(each) < first, own, others) for each in errors[1:])]


def _errors(comparison: Comparison, samples: Sequence[AnyArray]) -> list[AnyArray]:
    """The errors of the output and of its samples; 0 where one of both is no number."""
    expected = parts(comparison.expected)
    with np.errstate(invalid="ignore", over="ignore"):
        found = [parts(run) - expected for run in (widen(comparison.actual), *samples)]
    usable = np.isfinite(found[0])
    return [np.where(usable & np.isfinite(errors), errors, 0.0) for errors in found]


def shares(losses: Sequence[AnyArray], found: AnyArray) -> list[float]:
    """How much an output shows of each loss, none to all, by least squares: where several explain the same, the first
    of them."""
    usable = np.isfinite(found) & np.logical_and.reduce([np.isfinite(loss) for loss in losses])
    apart = np.stack([loss[usable] for loss in losses])
    products, rest = apart @ apart.T, apart @ np.clip(found[usable], -MOST_LOST, MOST_LOST)
    shown = [0.0] * len(apart)
    for _ in range(_ROUNDS):
        for place, row in enumerate(products):
            more = float(rest[place] / max(row[place], 1e-300))
            more = min(max(shown[place] + more, 0.0), 1.0) - shown[place]
            shown[place], rest = shown[place] + more, rest - more * row
    return shown


def share(lost: AnyArray, found: AnyArray) -> tuple[float, float]:
    """How much of a loss an output shows, by least squares, l.f / l.l for the loss l and the error f, and the standard
    error of that. Both in one unit, of one shape."""
    usable = np.isfinite(lost) & np.isfinite(found)
    lost, found = lost[usable], np.clip(found[usable], -MOST_LOST, MOST_LOST)
    square = max(np.dot(lost, lost), 1e-300)
    shown = np.dot(lost, found) / square
    rest = found - shown * lost
    return float(shown), float(np.sqrt(max(np.dot(rest, rest), 1e-300) / max(rest.size, 1) / square))


def fitted_factor(comparison: Comparison) -> tuple[float, float]:
    """The number that the reference is to be multiplied by to come nearest to the output, a.r / r.r, and its standard
    error, by HC3 (MacKinnon and White, 1985): rests over 1 - r_i^2 / r.r."""
    actual, expected = parts(comparison.actual.astype(comparison.expected.dtype)), parts(comparison.expected)
    usable = np.isfinite(actual) & np.isfinite(expected) & (expected != 0)
    if expected.dtype.kind != "f" or np.count_nonzero(usable) < 2:
        return 1.0, np.inf
    # Scaled, lest squares overflow.
    largest = np.abs(expected[usable]).max()
    unit, given = expected[usable] / largest, actual[usable] / largest
    square = np.dot(unit, unit)
    factor = float(np.dot(unit, given) / square)
    # Large elements may be off by more than small ones are, and one that decides alone has next to no rest (HC3).
    rest = (given - factor * unit) / np.maximum(1 - unit**2 / square, _DECIDES)
    return factor, float(np.sqrt(np.dot(rest**2, unit**2)) / square)
