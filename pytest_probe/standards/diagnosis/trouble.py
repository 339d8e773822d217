"""An output that failed, as recognisers see it: both sides, what each element is allowed, and which are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Literal, Protocol, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray, BoolArray, Float64Array, is_complex, is_floating, widen
from pytest_probe.numerics.ulp import ulp
from pytest_probe.standards.base import Standard
from pytest_probe.standards.diagnosis.common_factor import factors, is_uniform
from pytest_probe.standards.exact import correctly_rounded, identical
from pytest_probe.standards.noise import stages
from pytest_probe.standards.noise.standard import decided

# Of the wrong elements, what an explanation must make right; and of all, where it speaks of all.
NEARLY_ALL = 0.95
# Wrong elements: fewer are right by chance under one explanation or another.
ENOUGH = 4
# An explanation must bring the output nearer, by so much in the middle one of the wrong elements: a wide allowance
# alone explains nothing.
NEARER = 4.0

# Roundoffs that a kernel may be off by at a number that is not the expected one.
STEPS = 4.0
# Of the expected value: so little does chance not meet.
NARROW = 1e-4

Family: TypeAlias = Literal[
    "unwritten", "moved", "factor", "offset", "term", "argument", "precision", "range", "not finite"
]


class Cause(Struct, frozen=True):
    """What an error looks like, in words, and of which family that is."""

    family: Family
    words: str


class Trouble(Struct, frozen=True, dict=True):
    """An output that failed, and the standard that says so.

    actual, expected and allowed are float64 arrays of one shape: both sides, and the distance that the rule allows each
    element; wrong tells which are farther off, where in words. part is the cut of the first
    dimension that they are.
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
        """Are the wrong elements in a place of their own, so that an explanation need hold nowhere else?"""
        return not (self.where in ("everywhere", "scattered") or self.where.endswith("of it"))

    @property
    def whole(self) -> bool:
        return self.part is None

    @property
    def floating(self) -> bool:
        return is_floating(self.comparison.actual.dtype)

    @cached_property
    def factors(self) -> tuple[float, ...]:
        """Numbers that all that is wrong may be multiplied by, the likeliest first."""
        # Of a small factor only the elements that it moves farthest are wrong: they alone would tell a larger one.
        there = self.wrong if self.confined else ...
        return tuple(factors(self.actual[there], self.expected[there], self.comparison.precision))

    @cached_property
    def uniform(self) -> bool:
        """Is the output the reference times one number, and nothing else?"""
        if not self.floating or self.confined or not self.factors:
            return False
        return is_uniform(self.actual, self.expected, self.factors[0])

    def right(self, values: Float64Array, allowed: Float64Array | None = None) -> BoolArray:
        """Which elements of the output these values explain; NaN is like NaN, inf like inf of that sign."""
        near = self.allowed if allowed is None else allowed
        if self.floating:
            # Larger numbers than the expected ones are rounded at their own place.
            own = ulp(values, self.comparison.precision) / 2 + STEPS * self.comparison.roundoff * np.abs(values)
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
        least: int = ENOUGH,
        among: BoolArray | None = None,
    ) -> bool:
        """Do these values make nearly all wrong elements right, and bring them nearer?

        everywhere: they shall be right for the others too; None: unless the wrong ones have a place of their own.
        least: fewer wrong elements prove nothing, but where they are all that there is, and known to several digits.
        among: the elements that the explanation speaks of, at least half of the wrong ones.
        """
        wrong = self.wrong if among is None else self.wrong & among
        count = int(np.count_nonzero(wrong))
        if 2 * count < self.count or (count < least and not self._few_digits_tell(least)):
            return False
        right = self.right(values, allowed)
        if np.count_nonzero(right & wrong) < NEARLY_ALL * count:
            return False
        if everywhere or (everywhere is None and not self.confined):
            there = right if among is None else right[among]
            if np.count_nonzero(there) < NEARLY_ALL * there.size:
                return False
        return not self._beyond_rounding(values, wrong) * NEARER > self._beyond_rounding(self.expected, wrong)

    def _beyond_rounding(self, values: Float64Array, wrong: BoolArray) -> float:
        """The middle one of the wrong elements' distances, after half an ulp of a 16-bit output."""
        with np.errstate(invalid="ignore"):
            distance = np.abs(self.actual[wrong] - values[wrong])
            if self.floating:
                distance = np.maximum(distance - ulp(values[wrong], self.comparison.precision) / 2, 0.0)
        finite = distance[np.isfinite(distance)]
        return float(np.median(finite)) if finite.size else 0.0

    def _few_digits_tell(self, least: int) -> bool:
        if self.wrong.size >= least or self.count < self.wrong.size:
            return False
        return bool(np.all(self.allowed <= NARROW * np.abs(self.expected)))

    def by_chance(self, values: Float64Array) -> float:
        """The share of wrong elements that the same values explain in another order."""
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

    def _cut(self, name: str, values: Float64Array) -> Float64Array:
        """The part of a tensor in the output's shape that belongs to this part of the output."""
        return values[self.part] if self.part is not None and values.shape == self.comparison.actual.shape else values


def stretched(values: Float64Array, shape: tuple[int, ...]) -> Float64Array | None:
    """An array repeated to another shape; None where it does not fit."""
    fits = all(extent in (1, whole) for extent, whole in zip(values.shape[::-1], shape[::-1], strict=False))
    return np.broadcast_to(values, shape) if fits and values.ndim <= len(shape) else None


class Recogniser(Protocol):
    """One kind of cause."""

    def explain(self, trouble: Trouble) -> Cause | None:
        """The cause, where it explains nearly all that is wrong; None else."""


def wrong_elements(comparison: Comparison, verdict: OutputVerdict) -> tuple[BoolArray, AnyArray]:
    """Which elements are wrong, and the distance that each is allowed.

    By noise those above the largest ratio; where none is, since all together are, those above the limit of the RMS, or
    beyond rounding. Else those that are not the reference, correctly rounded.
    """
    actual, expected = comparison.actual, comparison.expected
    if not (is_floating(actual.dtype) or is_complex(actual.dtype)):
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


def trouble_of(
    standard: Standard, comparison: Comparison, verdict: OutputVerdict, wrong: BoolArray, allowed: AnyArray, where: str
) -> Trouble:
    """What recognisers see. Complex numbers have none."""
    actual, expected = (np.asarray(widen(side), dtype=np.float64) for side in (comparison.actual, comparison.expected))
    return Trouble(
        standard,
        comparison,
        verdict,
        actual,
        expected,
        np.nan_to_num(np.asarray(allowed, dtype=np.float64), posinf=0.0),
        wrong,
        where,
    )


def part_of(trouble: Trouble, size: int) -> Trouble:
    """The indices of the first dimension with most wrong elements, as many as `size` elements take; all of a smaller
    output."""
    shape = trouble.wrong.shape
    if trouble.wrong.size <= size or shape[0] < 2:
        return trouble
    rows = min(shape[0], max(2, size * shape[0] // trouble.wrong.size))
    counts = trouble.wrong.reshape(shape[0], -1).sum(axis=1)
    sums = np.concatenate(([0], np.cumsum(counts)))
    start = int(np.argmax(sums[rows:] - sums[:-rows]))
    cut = slice(start, start + rows)
    first = 0 if trouble.part is None else trouble.part.start
    return replace(
        trouble,
        actual=trouble.actual[cut],
        expected=trouble.expected[cut],
        allowed=trouble.allowed[cut],
        wrong=trouble.wrong[cut],
        part=slice(first + start, first + start + rows),
    )
