"""What one pass over an output adds up, block by block: extremes, counts, and sums in float64.

Blocks are short enough to stay in a core's cache. Whole steps are left out where a block's extremes say that they
would find nothing: no NaN, no small value, no relative error that large.
"""

from __future__ import annotations

import math

import numpy as np

from pytest_probe.numerics.conventions import Convention, float8_distance, powers
from pytest_probe.numerics.dtypes import (
    AnyArray,
    BoolArray,
    Float64Array,
    alike,
    binades,
    float_format,
    is_complex,
    round_to_spacing,
)
from pytest_probe.numerics.metrics import Vectors, dot, exact_total

# Elements: measured, with the rows of float64 in a core's cache and the cost of a NumPy call small against its work.
BLOCK = 131072
# Relative errors whose shares the tools print: msprobe 1 %, 0.1 % and 0.01 %, ptdbg 0.5 % as well.
CLOSE_LIMITS = (0.01, 0.005, 0.001, 0.0001)
# The largest bfloat16, as msprobe writes it down: it clips there though it compares in float32.
_MSPROBE_BFLOAT16_MAX = 3.3895313892515355e38


class Totals:
    """The sums of all blocks added.

    normal, small, outside (NaN or inf) and kept (in RMSE) count elements of a kind, names in _errors count elements of
    a kind that are off. ulp_top and ulp_sum are to be multiplied by ulp_unit. Complex numbers are compared by parts and
    measured by modulus.
    """

    def __init__(self, actual: AnyArray, expected: AnyArray, rule: Convention) -> None:
        self.rule = rule
        # Two formats: what the device gave, and what the tool turns that into before it compares.
        self.layout = float_format(actual.dtype)
        self.parts = 2 if is_complex(actual.dtype) or is_complex(expected.dtype) else 1
        self.single = self.layout.name == "float32" or (rule.widens_bfloat16 and self.layout.name == "bfloat16")
        self.container = float_format("float32") if self.single else self.layout
        self.judges_outside = rule.alike or (rule.rtol is not None and self.parts == 1)
        self.ulp: str | None = rule.ulp
        if rule.ulp == "exponent" and self.parts == 2:
            self.ulp = None
        elif rule.ulp == "exponent" and self.layout.name.startswith("float8"):
            self.ulp = "float8"
        self.ulp_unit = 1.0 if self.ulp == "float8" else 2.0 ** (self.layout.precision - 1)
        self._one_dtype = self.parts == 1 and actual.dtype == expected.dtype
        length = min(actual.size, BLOCK) * self.parts
        self._rows = np.empty((4, length))
        self._marks = np.empty((2, length), dtype=np.bool_)
        self._narrow = np.empty((2, length if self.single else 0), dtype=np.float32)

        self.count = self.normal = self.small = self.outside = self.kept = 0
        self.actual_top = self.expected_top = self.error_top = self.relative_top = 0.0
        self.relative_sum = self.squares = self.ulp_sum = 0.0
        self.ulp_top, self.ulp_over = -math.inf, 0
        self.close = [0] * len(CLOSE_LIMITS)
        self.small_errors = self.absolute_errors = self.relative_errors = self.outside_errors = 0
        self.above = self.below = self.differing = self.unlike = 0
        self.vectors = Vectors()

    def add(self, actual: AnyArray, expected: AnyArray) -> None:
        """Take in a block: one-dimensional, at most BLOCK elements, of the dtypes given at the start."""
        rows = self._rows[:, : actual.size * self.parts]
        a, b = self._wide(actual, rows[0]), self._wide(expected, rows[1])
        gap, size = np.subtract(a, b, out=rows[2]), np.abs(b, out=rows[3])
        np.abs(gap, out=gap)
        reach, error = _extremes(size), _largest(gap)
        settled = error < math.inf
        self._magnitudes(actual, a, b, reach)
        self._compare(actual, expected, a, b, settled, reach[1])
        # Elements finite on both sides, the reference in the container's numbers. None means all: most blocks hold
        # neither NaN nor inf, and need no mask.
        finite: BoolArray | None = None
        if not (settled and reach[1] <= self.container.max):
            finite = ~_any_part(~(np.isfinite(a) & np.isfinite(self._in_container(b))), self.parts)
        if finite is not None and self.parts == 1:
            self._count_outside(a, b, size, finite)
        left: BoolArray | None = None
        if not settled:
            left, b = self._part_nonfinite(a, b, gap)
            # The least magnitude is not known any more, since elements were left out.
            reach = 0.0, reach[1]
        squares = self._angle(a, b, gap, left)
        if self.ulp:
            self._count_ulps(a, b, gap, reach, rows[0])
        if self.parts == 2:
            gap, size = np.hypot(gap[::2], gap[1::2]), np.hypot(size[::2], size[1::2])
            if left is not None and not self.rule.alike:
                squares = dot(gap, gap)  # inf where one part is NaN and the other inf
        if left is not None and self.rule.alike:
            np.copyto(size, 0.0, where=left)
        if left is not None or self.parts == 2:
            reach, error = _extremes(size), _largest(gap)
        self.error_top = _top(self.error_top, error)
        self._count_errors(gap, size, reach[0], rows[0][: gap.size], finite, left, squares)
        self.count += actual.size

    def _wide(self, piece: AnyArray, row: Float64Array) -> Float64Array:
        """The piece in float64, parts of complex numbers side by side: itself, or written to the row."""
        if self.parts == 2:
            np.copyto(row.view(np.complex128), piece, casting="unsafe")
        elif piece.dtype == np.float64:
            return piece
        else:
            np.copyto(row, piece, casting="unsafe")
        return row

    def _magnitudes(self, actual: AnyArray, a: Float64Array, b: Float64Array, reach: tuple[float, float]) -> None:
        if self.parts == 2:
            tops = _largest(np.hypot(a[::2], a[1::2])), _largest(np.hypot(b[::2], b[1::2]))
        else:
            side = actual if actual.dtype == np.float32 else a  # half the bytes
            tops = max(_largest(side), -float(np.minimum.reduce(side))), reach[1]
        self.actual_top, self.expected_top = _top(self.actual_top, tops[0]), _top(self.expected_top, tops[1])

    def _compare(
        self, actual: AnyArray, expected: AnyArray, a: Float64Array, b: Float64Array, settled: bool, top: float
    ) -> None:
        """Count what is above, below and not equal. One comparison in float32 costs half of one in float64."""
        balance = 0
        if self.parts == 1:
            marks = self._marks[0, : a.size]
            # Both sides in the container's numbers.
            first, second = (actual, expected) if self.single else (a, self._in_container(b, top))
            if self.single:
                pair = zip((actual, expected), self._narrow[:, : a.size], strict=True)
                first, second = (side if side.dtype == np.float32 else _cast(side, row) for side, row in pair)
            above = int(np.count_nonzero(np.greater(first, second, out=marks)))
            below = int(np.count_nonzero(np.less(first, second, out=marks)))
            self.above, self.below, balance = self.above + above, self.below + below, above + below
        if self._one_dtype and settled:
            self.differing += balance
        else:
            self.differing += _count(_any_part(a != b, self.parts))

    def _in_container(self, b: Float64Array, top: float = math.inf) -> Float64Array:
        """The reference, none of whose magnitudes is above top, rounded to the container's numbers."""
        if self.container.name == "float64":
            return b
        rounded = round_to_spacing(b, self.container.spacing(b))
        return rounded if top <= self.container.max else self.container.overflowed(rounded)

    def _part_nonfinite(self, a: Float64Array, b: Float64Array, gap: Float64Array) -> tuple[BoolArray, Float64Array]:
        """Elements with NaN or inf on a side, and the reference. Where the rule goes by likeness, sets gaps to 0 or inf
        and the reference to 0 there."""
        nonfinite = ~(np.isfinite(a) & np.isfinite(b))
        unlike = nonfinite & ~alike(a, self.layout.overflowed(b))
        number = _count(_any_part(unlike, self.parts))
        self.unlike += number
        left = _any_part(nonfinite, self.parts)
        if self.rule.alike:
            np.copyto(gap, 0.0, where=nonfinite)
            np.copyto(gap, math.inf, where=unlike)
            self.outside += _count(left)
            self.outside_errors += number
            b = np.where(nonfinite, 0.0, b)
        return left, b

    def _angle(self, a: Float64Array, b: Float64Array, gap: Float64Array, left: BoolArray | None) -> float:
        """Add to the cosine's sums. Returns the sum of squared errors."""
        if left is not None and self.rule.alike:
            kept = ~np.repeat(left, self.parts)
            a, b = np.where(kept, a, 0.0), np.where(kept, b, 0.0)
            gap = a - b
        return self.vectors.add(a, b, gap)

    def _count_ulps(
        self, a: Float64Array, b: Float64Array, gap: Float64Array, reach: tuple[float, float], work: Float64Array
    ) -> None:
        if self.ulp == "float8":
            units = float8_distance(a, b)
        else:
            if self.ulp == "exponent":
                powers(b, self.layout, work, reach[0])
            else:
                binades(b, work)
                if not reach[0] >= (least := 2.0**self.layout.min_exponent):
                    np.maximum(work, least, out=work)
                if not reach[1] <= self.layout.max:
                    np.minimum(work, self.layout.top_binade, out=work)
            units = np.divide(gap, work, out=work)
        if self.parts == 2:
            units = np.maximum(units[::2], units[1::2])
        largest, over = _largest(units), self.rule.ulp_threshold / self.ulp_unit
        self.ulp_top = _top(self.ulp_top, largest)
        self.ulp_sum += exact_total(units)
        if not largest <= over:
            self.ulp_over += _count(np.greater(units, over, out=self._marks[0, : units.size]))

    def _count_errors(
        self,
        gap: Float64Array,
        size: Float64Array,
        least: float,
        work: Float64Array,
        finite: BoolArray | None,
        left: BoolArray | None,
        squares: float,
    ) -> None:
        """Count and sum absolute and relative errors; finite and left are None where all elements or none are."""
        rule = self.rule
        relative = self._relative(gap, size, least, work)
        largest = _largest(relative)
        for index, limit in enumerate(CLOSE_LIMITS):
            within = largest < limit
            self.close[index] += (
                gap.size if within else _count(np.less(relative, limit, out=self._marks[0, : gap.size]))
            )
        if rule.small_value is not None and (finite is not None or least <= rule.small_value):
            number, squares = self._count_small(gap, size, relative, largest, finite)
            largest = _largest(relative)
            kept = number
        else:
            number = gap.size
            kept = number - (_count(left) if left is not None and rule.alike else 0)
        self.normal, self.kept = self.normal + number, self.kept + kept
        self.squares += squares
        self.relative_top = _top(self.relative_top, largest)
        self.relative_sum += exact_total(relative)
        if rule.rtol is not None and not largest <= rule.rtol:
            self.relative_errors += _count(np.greater(relative, rule.rtol, out=self._marks[0, : gap.size]))

    def _relative(self, gap: Float64Array, size: Float64Array, least: float, work: Float64Array) -> Float64Array:
        """Relative errors, written to work: 0 where the error is, inf where just the denominator is."""
        eps = self.rule.eps
        if eps and self.rule.eps_at == "all":
            return np.divide(gap, np.add(size, eps, out=work), out=work)
        if least > 0:
            return np.divide(gap, size, out=work)
        # Masked copies cost four times as much as arithmetic where the mask is random, as relu's is.
        zeros = np.equal(size, 0.0, out=self._marks[0, : gap.size])
        np.add(size, np.multiply(zeros, eps or 1.0, out=work), out=work)
        np.divide(gap, work, out=work)
        if not eps:
            wrong = np.logical_and(zeros, np.greater(gap, 0.0, out=self._marks[1, : gap.size]), out=zeros)
            if wrong.any():
                np.copyto(work, math.inf, where=wrong)
        return work

    def _count_small(
        self, gap: Float64Array, size: Float64Array, relative: Float64Array, largest: float, finite: BoolArray | None
    ) -> tuple[int, float]:
        """Count the small elements, set what is not normal to zero in gap and relative, use up size. Returns the
        number of normal elements and the sum of their squared errors."""
        rule, off = self.rule, self._marks[1, : gap.size]
        small = np.less_equal(size, rule.small_value or 0.0, out=self._marks[0, : gap.size])
        if finite is not None:
            small &= finite
        number = _count(small)
        self.small += number
        self.small_errors += _count(np.logical_and(np.greater(gap, rule.small_atol, out=off), small, out=off))
        self.absolute_errors += _count(np.logical_and(np.greater(gap, rule.absolute_atol, out=off), small, out=off))
        drop = small if finite is None else np.logical_or(small, ~finite, out=off)
        # Multiplied by zeros and ones, which costs less than masked copies; inf times zero would be NaN.
        if finite is None and largest < math.inf:
            keep = np.subtract(1.0, small, out=size)
            gap *= keep
            relative *= keep
        else:
            np.copyto(gap, 0.0, where=drop)
            np.copyto(relative, 0.0, where=drop)
        return gap.size - _count(drop), dot(gap, gap)

    def _count_outside(self, a: Float64Array, b: Float64Array, size: Float64Array, finite: BoolArray) -> None:
        """msprobe's test of NaN and inf: clipped to the finite range they are as near as rtol, or both NaN. Its
        difference of opposite inf overflows; a reference that is inf forgives any finite one."""
        rule = self.rule
        if rule.alike or rule.rtol is None or finite.all():
            return
        chosen = ~finite
        given, wanted = a[chosen], self._in_container(b)[chosen]
        top = _MSPROBE_BFLOAT16_MAX if self.single and self.layout.name == "bfloat16" else self.layout.max
        gap = self.container.overflowed(np.abs(np.clip(given, -top, top) - np.clip(wanted, -top, top)))
        below = size[chosen]
        below = below + (rule.eps if rule.eps_at == "all" else rule.eps * (below == 0))
        agreed = (gap / below <= rule.rtol) | (np.isnan(given) & np.isnan(wanted))
        self.outside += given.size
        self.outside_errors += given.size - _count(agreed)


def _cast(values: AnyArray, out: AnyArray) -> AnyArray:
    np.copyto(out, values, casting="unsafe")
    return out


def _any_part(marks: BoolArray, parts: int) -> BoolArray:
    return marks if parts == 1 else marks[::2] | marks[1::2]


def _count(marks: BoolArray) -> int:
    return int(np.count_nonzero(marks))


def _extremes(values: Float64Array) -> tuple[float, float]:
    return float(np.minimum.reduce(values)), _largest(values)


def _largest(values: AnyArray) -> float:
    """The maximum, NaN where there is one."""
    return float(np.maximum.reduce(values))


def _top(so_far: float, value: float) -> float:
    """The larger of both, NaN where one is."""
    return so_far if value <= so_far or so_far != so_far else value
