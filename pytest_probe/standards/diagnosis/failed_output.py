"""An output that failed, as recognisers see it: both sides, the allowed distances, and which elements are wrong."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.model.comparison import Comparison, Standard
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.dtypes import (
    AnyArray,
    BoolArray,
    Float64Array,
    float_format,
    is_complex,
    is_floating,
    is_inexact,
    ulp,
    widen,
)
from pytest_probe.numerics.statistics import has_distinct
from pytest_probe.standards.exact import correctly_rounded, identical
from pytest_probe.standards.noise import stages
from pytest_probe.standards.noise.standard import decided

# A common factor explains an output if this share of its effect is left at most. It must show in so many distinct
# numbers, among so many elements.
_FACTOR_REST, _DISTINCT, _FIRST_ELEMENTS = 1 / 32, 16, 1024


def common_factors(actual: Float64Array, expected: Float64Array, dtype: npt.DTypeLike) -> Iterator[float]:
    """Candidates: a factor whose multiples round to the output in its dtype, the one by least squares, and the median
    of the elements' factors."""
    small = 2.0 ** float_format(dtype).min_exponent
    usable = np.isfinite(actual) & np.isfinite(expected) & (np.abs(expected) > small)
    if not usable.all():
        actual, expected = actual[usable], expected[usable]
    actual, expected = actual.reshape(-1), expected.reshape(-1)
    if not actual.size:
        return
    half = ulp(actual, dtype) / 2
    sizes, wanted = np.abs(actual), np.abs(expected)
    least, most = float(((sizes - half) / wanted).max()), float(((sizes + half) / wanted).min())
    if least <= most:
        yield (least + most) / 2
    unit = wanted.max()
    yield float(np.dot(actual / unit, expected / unit) / np.dot(expected / unit, expected / unit))
    yield float(np.median(actual / expected))


def is_uniform(actual: Float64Array, expected: Float64Array, factor: float) -> bool:
    """Is the output the reference times this factor?"""
    if not has_distinct(expected.ravel()[:_FIRST_ELEMENTS], _DISTINCT):
        return False
    with np.errstate(invalid="ignore", over="ignore"):
        explained = np.abs(actual - factor * expected) <= _FACTOR_REST * np.abs((factor - 1) * expected)
    return bool(np.count_nonzero(explained) >= NEARLY_ALL * explained.size)


# Share of the wrong elements that an explanation must make right; of all elements, where it is about all.
NEARLY_ALL = 0.95
# Fewer wrong elements fit one of many explanations by chance.
MIN_WRONG_ELEMENTS = 4
# An explanation must divide the median distance of the wrong elements by this: an element that is right only because
# its limit is wide explains nothing.
_MIN_IMPROVEMENT = 4.0

# Roundoffs that a kernel may be off by at a value other than the expected one.
_ROUNDOFFS = 4.0
# Share of the expected value: a match this close is no chance.
_SEVERAL_DIGITS = 1e-4

Family: TypeAlias = Literal[
    "unwritten", "moved", "factor", "offset", "term", "argument", "precision", "range", "not finite", "scales", "groups"
]


class Cause(Struct, frozen=True):
    """What an error looks like, in words, and of which family that is."""

    family: Family
    description: str


def is_confined(where: str) -> bool:
    """Is this, in words, one place?"""
    return not (where in ("everywhere", "scattered") or where.endswith("of it"))


class FailedOutput(Struct, frozen=True, dict=True):
    """An output that failed, and the standard that judged it.

    actual, expected and allowed are float64 arrays of one shape: both sides, and the distance that the rule allows each
    element; wrong marks those farther off, where says it in words. part is the slice of the first dimension that the
    arrays are cut to; None where they are whole.
    """

    standard: Standard
    comparison: Comparison
    verdict: OutputVerdict
    actual: Float64Array
    expected: Float64Array
    allowed: Float64Array
    wrong: BoolArray
    where: str
    part: slice | None = None

    @cached_property
    def count(self) -> int:
        return int(np.count_nonzero(self.wrong))

    @property
    def confined(self) -> bool:
        """Are the wrong elements confined to one place, so that an explanation need not hold elsewhere?"""
        return is_confined(self.where)

    @property
    def whole(self) -> bool:
        return self.part is None

    @property
    def floating(self) -> bool:
        return is_floating(self.comparison.actual.dtype)

    @cached_property
    def factors(self) -> tuple[float, ...]:
        """Factors by which all wrong elements may be multiplied, the likeliest first."""
        # With a small factor only the elements that it moves farthest are wrong; from them alone it would seem larger.
        there = self.wrong if self.confined else ...
        sides = (
            (self.rounded, self.expected)
            if float_format(self.comparison.precision).precision < 24
            else (self.expected,)
        )
        found = (common_factors(self.actual[there], side[there], self.comparison.precision) for side in sides)
        return tuple(itertools.chain.from_iterable(found))

    @cached_property
    def rounded(self) -> Float64Array:
        """The reference as a right output has it: what a factor multiplies that comes after the last rounding."""
        return widen(correctly_rounded(self.expected, self.comparison.precision))

    @cached_property
    def uniform(self) -> bool:
        """Is the output the reference times one factor?"""
        if not self.floating or self.confined or not self.factors:
            return False
        return is_uniform(self.actual, self.expected, self.factors[0])

    def right(self, values: Float64Array, allowed: Float64Array | None = None) -> BoolArray:
        """Which elements of the output these values explain; NaN is like NaN, inf like inf of that sign."""
        near = self.allowed if allowed is None else allowed
        if self.floating:
            # A value larger than expected has a larger rounding error.
            own = ulp(values, self.comparison.precision) / 2 + _ROUNDOFFS * self.comparison.roundoff * np.abs(values)
            near = np.fmax(near, own)
        with np.errstate(invalid="ignore"):
            found = np.abs(self.actual - values) <= near
        return np.asarray(found | (self.actual == values) | (np.isnan(self.actual) & np.isnan(values)))

    def explained(
        self,
        values: Float64Array,
        allowed: Float64Array | None = None,
        *,
        everywhere: bool | None = None,
        least: int = MIN_WRONG_ELEMENTS,
        among: BoolArray | None = None,
    ) -> bool:
        """Are nearly all wrong elements right by these values, and much nearer to them than to the reference?

        everywhere: must they be right for the other elements, too? None: unless the wrong ones are confined.
        least: fewer wrong elements prove nothing, unless the output has no others and they match to several digits.
        among: the elements that the explanation is about, at least half of the wrong ones.
        """
        wrong = self.wrong if among is None else self.wrong & among
        count = int(np.count_nonzero(wrong))
        if 2 * count < self.count:
            return False
        if count < least and (self.wrong.size >= least or self.count < self.wrong.size):
            return False
        if count < least and not np.all(self.allowed <= _SEVERAL_DIGITS * np.abs(self.expected)):
            return False
        right = self.right(values, allowed)
        if np.count_nonzero(right & wrong) < NEARLY_ALL * count:
            return False
        if everywhere or (everywhere is None and not self.confined):
            there = right if among is None else right[among]
            if np.count_nonzero(there) < NEARLY_ALL * there.size:
                return False
        return not self._beyond_rounding(values, wrong) * _MIN_IMPROVEMENT > self._beyond_rounding(self.expected, wrong)

    def _beyond_rounding(self, values: Float64Array, wrong: BoolArray) -> float:
        """The median distance of the wrong elements beyond half an ulp of the output."""
        with np.errstate(invalid="ignore"):
            distance = np.abs(self.actual[wrong] - values[wrong])
            if self.floating:
                distance = np.maximum(distance - ulp(values[wrong], self.comparison.precision) / 2, 0.0)
        finite = distance[np.isfinite(distance)]
        return float(np.median(finite)) if finite.size else 0.0

    def by_chance(self, values: Float64Array) -> float:
        """The share of wrong elements that the values explain in random order."""
        order = np.random.default_rng(0).permutation(values.size)
        right = self.right(values.reshape(-1)[order].reshape(values.shape), self.allowed)
        return float(np.count_nonzero(right & self.wrong)) / max(self.count, 1)

    def inputs(self) -> Iterator[tuple[str, Float64Array]]:
        """The call's tensors of real numbers by their parameters' names, and incoming gradients, float64."""
        given = {
            **self.comparison.call.given,
            **{f"the gradient of {n}": v for n, v in self.comparison.case.incoming.items()},
        }
        for name, value in given.items():
            if isinstance(value, np.ndarray) and value.size and not is_complex(value.dtype):
                yield name, self._cut(name, widen(value).astype(np.float64))

    def outputs(self) -> Iterator[tuple[str, Float64Array]]:
        """The reference's forward outputs, of a gradient."""
        for name, value in self.comparison.case.reference.items() if self.comparison.direction == "backward" else ():
            if isinstance(value, np.ndarray) and value.size and not is_complex(value.dtype):
                yield name, self._cut(name, widen(value).astype(np.float64))

    def others(self) -> Iterator[tuple[str, Float64Array]]:
        """What the reference says of the call's other outputs of this shape."""
        for name, value in self.comparison.case.compared.items():
            alike = isinstance(value, np.ndarray) and value.shape == self.comparison.actual.shape
            if alike and name != self.comparison.name and not is_complex(value.dtype):
                yield name, self._cut(name, widen(value).astype(np.float64))

    def _cut(self, name: str, values: Float64Array) -> Float64Array:
        """A tensor of the output's shape, cut to the same part as the output."""
        return values[self.part] if self.part is not None and values.shape == self.comparison.actual.shape else values


def broadcast_or_none(values: Float64Array, shape: tuple[int, ...]) -> Float64Array | None:
    """An array repeated to another shape; None where it does not fit."""
    fits = all(extent in (1, whole) for extent, whole in zip(values.shape[::-1], shape[::-1], strict=False))
    return np.broadcast_to(values, shape) if fits and values.ndim <= len(shape) else None


# One kind of cause: gives it if it explains nearly all wrong elements, else None.
Recogniser: TypeAlias = Callable[[FailedOutput], "Cause | None"]


def wrong_elements(comparison: Comparison, verdict: OutputVerdict) -> tuple[BoolArray, AnyArray]:
    """Which elements are wrong, and the distance that each is allowed.

    By noise those above the limit of the largest ratio; without one, those above the limit of the RMS, or beyond
    rounding. Otherwise the elements that differ from the correctly rounded reference.
    """
    actual, expected = comparison.actual, comparison.expected
    if not is_inexact(actual.dtype):
        return _unlike_rounded(comparison), np.zeros(expected.shape)
    half = ulp(np.abs(expected), comparison.precision) / 2
    if verdict.standard not in ("noise", "ties"):
        return _unlike_rounded(comparison), half
    stage = decided(comparison, verdict)
    scale = stages.scale_of(comparison, stage.spread)
    ratios = stage.noise.ratios
    for limit in (stage.limits.largest, stage.limits.rms, 1.0, 0.0):
        wrong = ~(ratios <= limit)
        if wrong.any():
            break
    return (wrong if wrong.any() else _unlike_rounded(comparison)), half + max(limit, 1.0) * scale


def _unlike_rounded(comparison: Comparison) -> BoolArray:
    return ~identical(comparison.actual, correctly_rounded(comparison.expected, comparison.actual.dtype))


def failed_output(
    standard: Standard, comparison: Comparison, verdict: OutputVerdict, wrong: BoolArray, allowed: AnyArray, where: str
) -> FailedOutput:
    """The failed output of a real dtype."""
    actual, expected = (np.asarray(widen(side), dtype=np.float64) for side in (comparison.actual, comparison.expected))
    return FailedOutput(
        standard,
        comparison,
        verdict,
        actual,
        expected,
        np.nan_to_num(np.asarray(allowed, dtype=np.float64), posinf=0.0),
        wrong,
        where,
    )


def part_of(failed: FailedOutput, size: int) -> FailedOutput:
    """The consecutive indices of the first dimension with the most wrong elements, about `size` elements; all of a
    smaller output."""
    shape = failed.wrong.shape
    if failed.wrong.size <= size or shape[0] < 2:
        return failed
    rows = min(shape[0], max(2, size * shape[0] // failed.wrong.size))
    counts = failed.wrong.reshape(shape[0], -1).sum(axis=1)
    sums = np.concatenate(([0], np.cumsum(counts)))
    start = int(np.argmax(sums[rows:] - sums[:-rows]))
    cut = slice(start, start + rows)
    first = 0 if failed.part is None else failed.part.start
    return replace(
        failed,
        actual=failed.actual[cut],
        expected=failed.expected[cut],
        allowed=failed.allowed[cut],
        wrong=failed.wrong[cut],
        part=slice(first + start, first + start + rows),
    )
