"""Products and shifts of the reference: negated, a factor, a power, a factor or a shift of each slice."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from msgspec import Struct

from pytest_probe.numerics.dtypes import Float64Array
from pytest_probe.numerics.statistics import has_distinct
from pytest_probe.standards.diagnosis.trouble import ENOUGH, NEARLY_ALL, Cause, Trouble

# Elements of a slice, and slices: a factor of its own explains a slice of fewer.
SLICE, SLICES = 4, 2
# How near a factor must come to a number of the call to be called by it, in roundoffs of the dtype.
NEAR = 64.0
# Of a factor that few numbers show: 64 and below are some 2,500 quotients, which chance meets in one of 50 cases.
LARGEST_QUOTIENT = 64
# A factor as near to 1 is what cut operands leave as well.
NEAR_ONE = 2.0**-8
POWERS = ((2.0, "squared"), (0.5, "the root is taken"), (-1.0, "the reciprocal"))


class Sign:
    def explain(self, trouble: Trouble) -> Cause | None:
        if trouble.uniform and trouble.factors[0] > 0:
            return None
        if trouble.explained(-trouble.expected):
            return Cause("factor", "negated")
        if trouble.explained(np.abs(trouble.expected)):
            return Cause("factor", "without its sign")
        return None


class Factor(Struct, frozen=True):
    """A number that all wrong elements are multiplied by: one near 1, or another."""

    near_one: bool = False

    def explain(self, trouble: Trouble) -> Cause | None:
        if not trouble.floating:
            return None
        if trouble.count < ENOUGH:
            return None if self.near_one else self._of_few(trouble)
        # One number for another has some factor, however often.
        if not has_distinct(trouble.expected[trouble.wrong], ENOUGH):
            return None
        for factor in trouble.factors:
            if (abs(factor - 1) < NEAR_ONE) != self.near_one:
                continue
            if trouble.explained(factor * trouble.expected, max(1.0, abs(factor)) * trouble.allowed):
                start = "the wrong ones" if trouble.confined else "all"
                return Cause("factor", f"{start} times {_factor_words(trouble, factor)}")
        return None

    def _of_few(self, trouble: Trouble) -> Cause | None:
        """A few numbers have some factor always; it tells where it is a number of the call's own, or a simple one."""
        factor = next(iter(trouble.factors), 1.0)
        for value, words in _simple(trouble, factor):
            if trouble.explained(value * trouble.expected, max(1.0, abs(value)) * trouble.allowed):
                return Cause("factor", f"all times {words}")
        return None


def _simple(trouble: Trouble, factor: float) -> Iterator[tuple[float, str]]:
    """Numbers of the call near the factor, and quotients of small numbers."""
    known = _known(trouble, factor)
    if known:
        yield factor, known
    quotient = Fraction(factor).limit_denominator(LARGEST_QUOTIENT)
    if 0 < abs(quotient.numerator) <= LARGEST_QUOTIENT or quotient.denominator == 1:
        yield float(quotient), str(quotient)


def _factor_words(trouble: Trouble, factor: float) -> str:
    return _known(trouble, factor) or f"{1 + float(f'{factor - 1:.2g}'):.12g}"


def _known(trouble: Trouble, factor: float) -> str:
    """The factor as a number of the call: 2, 1/64, 64/63, log2(e); "" where it is none."""
    near = NEAR * max(trouble.comparison.roundoff, 2.0**-24)
    extents = {size for _, value in trouble.inputs() for size in (*value.shape, value.size)} | set(trouble.wrong.shape)
    for size in sorted(size for size in extents if size > 1):
        for value, words in (
            (float(size), f"{size}"),
            (1 / size, f"1/{size}"),
            (size / (size - 1), f"{size}/{size - 1}"),
            ((size - 1) / size, f"{size - 1}/{size}"),
            (math.sqrt(size), f"sqrt({size})"),
            (1 / math.sqrt(size), f"1/sqrt({size})"),
        ):
            if abs(abs(factor) / value - 1) < near:
                return f"{'-' if factor < 0 else ''}{words}"
    named = (
        (2.0, "2"),
        (0.5, "1/2"),
        (4.0, "4"),
        (0.25, "1/4"),
        (math.log2(math.e), "log2(e)"),
        (math.log(2), "ln(2)"),
    )
    found = next((words for value, words in named if abs(abs(factor) / value - 1) < near), "")
    return f"{'-' if factor < 0 else ''}{found}" if found else ""


class Power:
    def explain(self, trouble: Trouble) -> Cause | None:
        magnitude = np.abs(trouble.expected)
        for power, words in POWERS:
            with np.errstate(all="ignore"):
                values = np.copysign(magnitude**power, trouble.expected)
                allowed = trouble.allowed * np.maximum(1.0, np.abs(power) * magnitude ** (power - 1))
            if np.isfinite(values).mean() >= NEARLY_ALL and trouble.explained(values, allowed):
                return Cause("factor", words)
        return None


class SliceFactor:
    """A factor for each index of some dimensions: a sum, a norm or a scale is wrong that runs over the others."""

    def explain(self, trouble: Trouble) -> Cause | None:
        used = trouble.wrong & np.isfinite(trouble.actual) & np.isfinite(trouble.expected)
        for within in slices_within(trouble) if trouble.floating else ():
            below = np.sum(np.where(used, trouble.expected, 0.0) ** 2, axis=within, keepdims=True)
            above = np.sum(np.where(used, trouble.expected * trouble.actual, 0.0), axis=within, keepdims=True)
            factors = np.divide(above, below, out=np.ones_like(above), where=below > 0)
            allowed = np.maximum(1.0, np.abs(factors)) * trouble.allowed
            if not trouble.explained(factors * trouble.expected, allowed, least=2 * ENOUGH):
                continue
            low, high = (f"{value:.4g}" for value in (factors[below > 0].min(), factors[below > 0].max()))
            words = f"a factor for {_each(trouble, within)}, {low} to {high}: a sum, norm or scale is wrong"
            return Cause("factor", words)
        return None


class SliceOffset:
    """A number that is added to each slice, or to everything."""

    def explain(self, trouble: Trouble) -> Cause | None:
        if trouble.count < 2 * ENOUGH:
            return None
        gap = np.where(trouble.wrong, trouble.actual - trouble.expected, np.nan)
        gap = np.where(np.isfinite(gap), gap, np.nan)
        every = tuple(range(gap.ndim))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # slices without a wrong element
            for within in (every, *slices_within(trouble)):
                shift = np.nan_to_num(np.nanmedian(gap, axis=within, keepdims=True))
                if trouble.explained(trouble.expected + shift, least=2 * ENOUGH):
                    return Cause("offset", self._words(trouble, within, shift))
        return None

    def _words(self, trouble: Trouble, within: tuple[int, ...], shift: Float64Array) -> str:
        if len(within) == trouble.wrong.ndim:
            return f"all plus {float(shift.ravel()[0]):.4g}"
        return f"a number added for {_each(trouble, within)}, {float(shift.min()):.4g} to {float(shift.max()):.4g}"


def slices_within(trouble: Trouble) -> Iterator[tuple[int, ...]]:
    """The sets of dimensions that a slice may run over, the longest slices first; each slice has enough that is wrong
    to tell its number."""
    shape = trouble.wrong.shape
    sets = [found for size in range(1, len(shape)) for found in itertools.combinations(range(len(shape)), size)]
    for found in sorted(sets, key=lambda each: -math.prod(shape[axis] for axis in each)):
        counts = np.count_nonzero(trouble.wrong, axis=found)
        slices = np.count_nonzero(counts)
        if slices >= SLICES and np.median(counts[counts > 0]) >= SLICE:
            yield found


def _each(trouble: Trouble, within: tuple[int, ...]) -> str:
    others = [axis for axis in range(trouble.wrong.ndim) if axis not in within]
    if len(others) == 1:
        return f"each index of dim {others[0]}"
    return f"each index of dims {', '.join(map(str, others))}"
