"""What a passing sample of an output says of the other elements: which of them it does not answer for."""

from __future__ import annotations

import numpy as np
from msgspec import Struct, structs
from msgspec.structs import replace

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.device_arrays import Bounds
from pytest_probe.numerics import allowed_scale, kernel
from pytest_probe.numerics.allowed_scale import Spread
from pytest_probe.numerics.dtypes import AnyArray, BoolArray, float_format, ulp, widen
from pytest_probe.standards.noise import stages
from pytest_probe.standards.noise.explanation import Stage
from pytest_probe.standards.noise.summed_terms import of_few_terms

# A row that errs so many times as much as all drawn elements is judged itself. Chosen: it adds a tenth of the rows of a
# norm's gradient in bfloat16, none of a softmax's.
FARTHER = 1.5
# How much farther off than the farthest drawn element one of attention may be, where half the limit leaves as much
# room: its rows attend to few keys or to many, and each undrawn head has an element a little beyond all drawn ones.
ROOM = 4.0


class UnsampledSuspects(Struct, frozen=True):
    """Tells which elements may be above a limit compared with runs, where drawn elements of their output are within
    theirs in a stage: not those that are within them for half the RMS of the drawn ones' scatter. Nor, where steps in
    16 bit or the CPU's own errors explain the drawn ones, those that are no farther off than these, in ulps or in what
    each is granted, but for rows that are farther off as a whole; attention has some more room.

    least is what each is granted; farthest and row are how far an element, and a row as a whole, may be off beside such
    steps, None without them.
    """

    comparison: Comparison
    limit: float
    least: float
    farthest: float | None = None
    row: float = 0.0

    @classmethod
    def of(cls, drawn: Comparison, stage: Stage) -> UnsampledSuspects:
        limit = min(stage.limits.largest, stages.limits_of(of_few_terms(drawn)).largest)
        size = None if stage.spread is None or drawn.elementwise else stage.spread.size
        least = 0.0 if size is None else allowed_scale.RMS_SHARE * allowed_scale.root_mean_square(size)
        if stage.source != stages.BETWEEN_STEPS and stage.within_limits:
            return cls(drawn, limit, least)
        off = _steps_off(drawn, least)
        farthest, row = float(np.max(off, initial=0.0)), FARTHER * allowed_scale.root_mean_square(off)
        if "attention" in drawn.classes:
            room = stage.limits.largest / (2 * max(stage.noise.largest, allowed_scale.TINY))
            farthest *= min(ROOM, max(1.0, room))
            row = max(row, float(np.max(_by_row(off), initial=0.0)))
        return cls(drawn, limit, least, farthest, row)

    @property
    def bounds(self) -> Bounds:
        """What each element may be off by whatever else is known of it."""
        form = float_format(self.comparison.precision)
        least = float(np.maximum(allowed_scale.least_allowed(form), self.least))
        return Bounds(form, self.comparison.roundoff, least, self.limit)

    def __call__(self, actual: AnyArray, expected: AnyArray) -> BoolArray:
        """Those of a part of the output, of whatever shape."""
        # Above the limit beside what each is granted; what no run moves from zero is granted less.
        form, roundoff, least, limit = structs.astuple(self.bounds)
        found = kernel.opened(actual, expected, form, roundoff=roundoff, least=least, limit=limit)
        if found is None:
            part = replace(self.comparison, actual=actual, expected=expected)
            everywhere = Spread.of(np.full(expected.shape, self.least)) if self.least else None
            ratios = stages.noise_of(part, everywhere, share=0.0).ratios
            found = np.asarray(~(ratios <= self.limit) | ((expected == 0) & (ratios > 0)))
        if self.farthest is not None and found.any():
            off = _steps_off(replace(self.comparison, actual=actual, expected=expected), self.least)
            found &= ~(off <= self.farthest) | ~(_by_row(off) <= self.row)
        return found


def _by_row(off: AnyArray) -> AnyArray:
    """The RMS of each row, along the last dimension."""
    return np.asarray(np.sqrt(np.mean(np.square(off), axis=-1, keepdims=True)))


def _steps_off(comparison: Comparison, least: float) -> AnyArray:
    """How far elements are off, in ulps of theirs, or in `least` where that is more."""
    with np.errstate(invalid="ignore", over="ignore"):
        unit = np.fmax(ulp(comparison.expected, comparison.precision), least)
        return np.asarray(np.abs(widen(comparison.actual) - comparison.expected) / unit)
