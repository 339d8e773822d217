"""The noise rule in numbers: how far each element is from the reference, in units of what its precision explains.

Noise ratio of an element = max(0, |actual - R| - ulp(R) / 2) / A, without a unit. R is the float64 reference, the ulp
that of the output's dtype, A the allowed scale (allowed_scale.py). actual, R and A have the output's shape. Limits
(noise_limits.py) are for the largest ratio and for the RMS of all.

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
from pytest_probe.numerics.dtypes import AnyArray, BoolArray, float_format
from pytest_probe.numerics.metrics import dot
from pytest_probe.numerics.noise_limits import Limits
from pytest_probe.numerics.ulp import ulp


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
