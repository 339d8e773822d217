"""Products and shifts of the reference (negated, a factor, a power, a factor or a shift of each slice); and terms that
are missing, or there twice: multiples of arguments in what the output is off by.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
from msgspec import Struct

from pytest_probe.numerics.dtypes import Float64Array
from pytest_probe.numerics.statistics import has_distinct
from pytest_probe.standards.diagnosis.failed_output import (
    MIN_WRONG_ELEMENTS,
    NEARLY_ALL,
    Cause,
    FailedOutput,
    broadcast_or_none,
    part_of,
)

# Elements of a slice, and slices: a factor of its own explains a slice of fewer.
_SLICE, _SLICES = 4, 2
# By how much an offset is above the limits that is added to some elements here and there.
_FAR = 64.0
# How near a factor must come to a number of the call to be called by it, in roundoffs of the dtype.
_NEAR_FACTOR = 64.0
# Of a factor that few numbers show: 64 and below are some 2,500 quotients, which chance meets in one of 50 cases.
_LARGEST_QUOTIENT = 64
# A smaller factor has no digit of its own next to 1.
_SMALL = 0.1
# A factor as near to 1 is what cut operands leave as well.
_NEAR_ONE = 2.0**-8
_POWERS = ((2.0, "squared"), (0.5, "the root is taken"), (-1.0, "the reciprocal"))


def sign(failed: FailedOutput) -> Cause | None:
    if failed.uniform and failed.factors[0] > 0:
        return None
    if failed.explained(-failed.expected):
        return Cause("factor", "negated")
    if failed.explained(np.abs(failed.expected)):
        return Cause("factor", "without its sign")
    return None


class Factor(Struct, frozen=True):
    """A number that all wrong elements are multiplied by: one near 1, or another."""

    near_one: bool = False

    def __call__(self, failed: FailedOutput) -> Cause | None:
        if not failed.floating:
            return None
        if failed.count < MIN_WRONG_ELEMENTS:
            return None if self.near_one else self._of_few(failed)
        # One number for another has some factor, however often.
        if not has_distinct(failed.expected[failed.wrong], MIN_WRONG_ELEMENTS):
            return None
        for factor in failed.factors:
            if (abs(factor - 1) < _NEAR_ONE) != self.near_one:
                continue
            allowed = max(1.0, abs(factor)) * failed.allowed
            if any(failed.explained(factor * side, allowed) for side in (failed.expected, failed.rounded)):
                start, size = "the wrong ones" if failed.confined else "all", abs(factor)
                short = 1 + float(f"{size - 1:.2g}") if size > _SMALL else float(f"{size:.2g}")
                words = _known(failed, factor) or f"{math.copysign(short, factor):.12g}"
                return Cause("factor", f"{start} times {words}")
        return None

    def _of_few(self, failed: FailedOutput) -> Cause | None:
        """A few numbers have some factor always; it tells where it is a number of the call's own, or a simple one."""
        factor = next(iter(failed.factors), 1.0)
        # Numbers of the call near the factor, and quotients of small numbers.
        known, quotient = _known(failed, factor), Fraction(factor).limit_denominator(_LARGEST_QUOTIENT)
        simple = [(factor, known)] if known else []
        if 0 < abs(quotient.numerator) <= _LARGEST_QUOTIENT or quotient.denominator == 1:
            simple.append((float(quotient), str(quotient)))
        for value, words in simple:
            if failed.explained(value * failed.expected, max(1.0, abs(value)) * failed.allowed):
                return Cause("factor", f"all times {words}")
        return None


def _known(failed: FailedOutput, factor: float) -> str:
    """The factor as a number of the call: 2, 1/64, 64/63, log2(e); "" for any other."""
    near = _NEAR_FACTOR * max(failed.comparison.roundoff, 2.0**-24)
    extents = {size for _, value in failed.inputs() for size in (*value.shape, value.size)} | set(failed.wrong.shape)
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


def power(failed: FailedOutput) -> Cause | None:
    magnitude = np.abs(failed.expected)
    for power, words in _POWERS:
        with np.errstate(all="ignore"):
            values = np.copysign(magnitude**power, failed.expected)
            allowed = failed.allowed * np.maximum(1.0, np.abs(power) * magnitude ** (power - 1))
        if np.isfinite(values).mean() >= NEARLY_ALL and failed.explained(values, allowed):
            return Cause("factor", words)
    return None


def slice_factor(failed: FailedOutput) -> Cause | None:
    """A factor for each index of some dimensions: a sum, a norm or a scale is wrong that runs over the others."""
    used = failed.wrong & np.isfinite(failed.actual) & np.isfinite(failed.expected) & (failed.expected != 0)
    # Their middle, since in 16 bit the rounding of the largest element would be in a mean.
    quotients = np.divide(failed.actual, failed.expected, out=np.full(used.shape, np.nan), where=used)
    for within in _slices_within(failed) if failed.floating else ():
        below = used.any(axis=within, keepdims=True)
        factors = np.where(below, _middles(quotients, within), 1.0)
        allowed = np.maximum(1.0, np.abs(factors)) * failed.allowed
        if not failed.explained(factors * failed.expected, allowed, least=2 * MIN_WRONG_ELEMENTS):
            continue
        low, high = (f"{value:.4g}" for value in (factors[below].min(), factors[below].max()))
        words = f"a factor for {_each(failed, within)}, {low} to {high}: a sum, norm or scale is wrong"
        return Cause("factor", words)
    return None


def slice_offset(failed: FailedOutput) -> Cause | None:
    """A number that is added to each slice, or to everything."""
    # One number for another is off by some number, however often.
    if failed.count < 2 * MIN_WRONG_ELEMENTS or not has_distinct(failed.expected[failed.wrong], MIN_WRONG_ELEMENTS):
        return None
    gap = np.where(failed.wrong, failed.actual - failed.expected, np.nan)
    gap = np.where(np.isfinite(gap), gap, np.nan)
    every = tuple(range(gap.ndim))
    for within in (every, *_slices_within(failed)):
        shift = _middles(gap, within)
        # One number far above the limits is no chance, wherever it is added.
        sure = within == every and np.abs(shift) > _FAR * np.median(failed.allowed[failed.wrong])
        somewhere = False if sure else None
        if not failed.explained(failed.expected + shift, everywhere=somewhere, least=2 * MIN_WRONG_ELEMENTS):
            continue
        if within == every:
            where = "all" if failed.explained(failed.expected + shift) else "the wrong ones"
            return Cause("offset", f"{where} plus {float(shift.ravel()[0]):.4g}")
        ends = f"{float(shift.min()):.4g} to {float(shift.max()):.4g}"
        return Cause("offset", f"a number added for {_each(failed, within)}, {ends}")
    return None


def _middles(values: Float64Array, within: tuple[int, ...]) -> Float64Array:
    """Of each slice, 0 where it has no number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.nan_to_num(np.nanmedian(values, axis=within, keepdims=True))


def _slices_within(failed: FailedOutput) -> Iterator[tuple[int, ...]]:
    """The sets of dimensions that a slice may run over, the longest slices first; each slice has enough that is wrong
    to tell its number."""
    shape = failed.wrong.shape
    sets = [found for size in range(1, len(shape)) for found in itertools.combinations(range(len(shape)), size)]
    for found in sorted(sets, key=lambda each: -math.prod(shape[axis] for axis in each)):
        counts = np.count_nonzero(failed.wrong, axis=found)
        slices = np.count_nonzero(counts)
        if slices >= _SLICES and np.median(counts[counts > 0]) >= _SLICE:
            yield found


def _each(failed: FailedOutput, within: tuple[int, ...]) -> str:
    others = [axis for axis in range(failed.wrong.ndim) if axis not in within]
    if len(others) == 1:
        return f"each index of dim {others[0]}"
    return f"each index of dims {', '.join(map(str, others))}"


# Terms that are missing, or there twice.

# How near 1 a coefficient must be to be called missing, or twice.
_ONE_TOLERANCE = 1e-2
# Elements that are looked at, arguments of which there may be multiples, elements of a slice for each multiple.
_PART, _TERMS, _EACH = 1 << 16, 5, 8
# Slices that are looked at one by one.
_FEW_SLICES = 8

_REFERENCE, _ONE = "the right result", "1"
_Term = tuple[str, Float64Array]


def slice_term(failed: FailedOutput) -> Cause | None:
    """One index of an argument that is missing, or there twice, in one index of the output's first dimension."""
    shape = failed.wrong.shape
    if len(shape) < 2 or failed.wrong[0].size < MIN_WRONG_ELEMENTS:
        return None
    bad = np.flatnonzero(failed.wrong.reshape(shape[0], -1).any(axis=1)).tolist()
    if len(bad) > _FEW_SLICES:
        return None
    for name, values in failed.inputs():
        if values.shape[1:] == shape[1:] and values.shape[0] > 1:
            found, words = np.array(failed.expected), ""
            for index in bad:
                gap = failed.actual[index] - failed.expected[index]
                distances = [np.abs(values - sign * gap).reshape(len(values), -1).max(axis=1) for sign in (1.0, -1.0)]
                twice = bool(distances[0].min() < distances[1].min())
                best = int(np.argmin(distances[0] if twice else distances[1]))
                found[index] += values[best] if twice else -values[best]
                words = words or f"index {index} of dim 0 {'has twice' if twice else 'lacks'} index {best} of {name}"
            if words and failed.explained(found):
                return Cause("term", words)
    return None


class Combination:
    """What the output is off by is a sum of multiples of arguments, the same for all of it or others for each slice; it
    may be the reference itself, too. sliced: others for each slice, and with the reference."""

    def __init__(self, *, sliced: bool) -> None:
        self._sliced = sliced

    def __call__(self, failed: FailedOutput) -> Cause | None:
        # One number for another is a multiple of some others, however often.
        if not (failed.floating and has_distinct(failed.expected[failed.wrong], MIN_WRONG_ELEMENTS)):
            return None
        failed = part_of(failed, _PART)
        if failed.wrong.size > 2 * _PART or failed.count < 2 * _EACH:
            return None
        for basis, within in self._forms(failed):
            words = self._fitted(failed, basis, within)
            if words:
                return Cause("factor" if basis[0][0] == _REFERENCE else "term", words)
        return None

    def _forms(self, failed: FailedOutput) -> Iterator[tuple[Sequence[_Term], tuple[int, ...]]]:
        """What may be added, the fewest terms first, and over which dimensions alike."""
        terms = list(itertools.islice(_terms(failed), _TERMS))
        every = tuple(range(failed.wrong.ndim))
        for size in (1, 2):
            for chosen in itertools.combinations(terms, size):
                if not self._sliced:
                    if chosen[0][0] != _ONE or size > 1:  # a number alone is an offset
                        yield chosen, every
                    continue
                yield from ((chosen, within) for within in _slices_within(failed))
                # Three terms and a number: of smooth numbers they make anything.
                if size == 1 or chosen[0][0] != _ONE:
                    basis = ((_REFERENCE, failed.expected), *chosen)
                    yield from ((basis, within) for within in (every, *_slices_within(failed)))

    def _fitted(self, failed: FailedOutput, basis: Sequence[_Term], within: tuple[int, ...]) -> str:
        used = failed.wrong & np.isfinite(failed.actual) & np.isfinite(failed.expected)
        slices = max(1, int(np.count_nonzero(used.any(axis=within))))
        if np.count_nonzero(used) < _EACH * len(basis) * slices:
            return ""
        gap = np.where(used, failed.actual - failed.expected, 0.0)
        rows = [np.where(used, values, 0.0) for _, values in basis]
        square = np.stack([np.stack([np.sum(a * b, axis=within) for a in rows], -1) for b in rows], -1)
        right = np.stack([np.sum(gap * row, axis=within) for row in rows], -1)
        try:
            factors = (np.linalg.pinv(square, hermitian=True) @ right[..., None])[..., 0]
        except np.linalg.LinAlgError:
            return ""
        spread = [np.expand_dims(factors[..., place], within) for place in range(len(basis))]
        added = [np.asarray(f * values) for f, (_, values) in zip(spread, basis, strict=True)]
        # A term that moves nothing beyond the limits has no part in it.
        if any(np.all(np.abs(term) <= failed.allowed) for term in added):
            return ""
        if not failed.explained(failed.expected + sum(added, np.zeros(())), least=2 * _EACH):
            return ""
        return _words(basis, factors, same=len(within) == failed.wrong.ndim)


def _words(basis: Sequence[_Term], factors: Float64Array, *, same: bool) -> str:
    names = [name for name, _ in basis]
    if not same:
        return f"off by multiples of {' and '.join(names)}, others for each slice"
    if len(names) == 1 and abs(abs(float(factors[0])) - 1) < _ONE_TOLERANCE:
        return f"{names[0]} {'added once too often' if factors[0] > 0 else 'missing'}"
    return "off by " + " and ".join(f"{float(f):.4g} times {name}" for f, name in zip(factors, names, strict=True))


def _terms(failed: FailedOutput) -> Iterator[_Term]:
    """Arguments and forward outputs in the output's shape, those of one number for each channel too."""
    shape = failed.wrong.shape
    yield _ONE, np.ones(shape)
    for name, values in itertools.chain(failed.outputs(), failed.inputs()):
        if values.size < MIN_WRONG_ELEMENTS or values.ndim > len(shape) or not np.isfinite(values).all():
            continue
        for form in dict.fromkeys((values.shape, (*values.shape, *(1,) * (len(shape) - 1 - values.ndim)))):
            wide = broadcast_or_none(values.reshape(form), shape)
            if wide is not None:
                yield name, wide
