"""Rounding where there should be none, or of another kind: device modes, narrower results, one step too high."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.model.comparison import Assumption, Comparison
from pytest_probe.model.device_modes import Behaviour, Cut, Mode
from pytest_probe.numerics import allowed_scale, regions
from pytest_probe.numerics.dtypes import (
    AnyArray,
    Float64Array,
    float_format,
    numpy_dtype,
    round_to,
    truncated,
    ulp,
    widen,
)
from pytest_probe.numerics.statistics import has_distinct
from pytest_probe.standards.device_modes.allowed import emulations, judge_emulated, metrics_text
from pytest_probe.standards.device_modes.rounded_operands import is_as_large
from pytest_probe.standards.device_modes.sampled_rounding import SampledEvidence
from pytest_probe.standards.device_modes.signature import outlying
from pytest_probe.standards.diagnosis.failed_output import MIN_WRONG_ELEMENTS, NEARLY_ALL, Cause, FailedOutput

_NARROWER = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
# Steps of a narrower dtype that a result may be off by which went through it.
_REACH = 2.0
# Elements on the same side of the reference, among the ones that a step to one side explains.
_ONE_SIDED = 0.9
# What rounding inside leaves, in the middle, of an element or of the output's RMS: float16 to float8; and 99 of 100
# elements, in that.
_LEAST, _MOST, _SPREAD = 2.0**-16, 2.0**-5.5, 12.0
# Of the wrong elements, how many more on one side than on the other; correlation of neighbours' errors.
_BALANCED, _SMOOTH = 0.35, 0.35
_MANY = 32
# How much smaller than 1 results are that lose digits where 1 is added and taken away.
_RISES = 16
# Of the elements, what a mode may leave wrong that explains the others.
_FEW = 0.05
# How much farther than one run an element may move in several, and how often the limits of the last stage are taken by
# that of equal terms. Chosen, far above both.
_MORE, _WIDEST = 4.0, 8.0
# Where operands may be cut. How closely errors follow a mode's: the rank correlation, its size in standard errors, and
# among how many elements. Random errors of 13 calls have 2.3 standard errors at most; a device that rounds one operand
# has 2.5 to 4.3 in 16 to 32 elements, and far more in many.
_CUTS: tuple[Cut, ...] = ("", "both", "first", "second")
_FOLLOWS, _CLEARLY, _AMONG = 0.3, 2.5, 8
# And how far each element is off, where a mode's own order of a sum is not known: by how many standard errors, and from
# how many elements on. Fewer show no order, and are as large as the mode's.
_SIZES_FOLLOW, _OF_MANY = 4.0, 1024


class DeviceMode(Struct, frozen=True):
    """The output is what a device mode gives."""

    behaviours: Sequence[Behaviour]

    def __call__(self, failed: FailedOutput) -> Cause | None:
        if failed.verdict.standard not in ("noise", "ties") or not failed.whole:
            return None
        nearly = None
        # Operands that are rounded, each another way, come to no common factor; zeros come to zero.
        apart = any(behaviour.rounds or behaviour.flushes for behaviour in self.behaviours)
        if apart and failed.uniform and failed.factors[0]:
            return None
        for each in self.behaviours:
            # Without convolutions of transformed tiles: those of one mode err as much as others of the next.
            behaviour = replace(each, variants=tuple(mode for mode in each.variants if not mode.tiles))
            for emulated in emulations(failed.comparison, behaviour):
                found = judge_emulated(failed.standard, emulated) if self._near(failed, emulated, behaviour) else None
                if found is None:
                    continue
                if not _follows(failed, behaviour):
                    break
                if found.verdict == "pass":
                    words = f"{_like(behaviour)}: {metrics_text(found)} instead of {metrics_text(failed.verdict)}"
                    return Cause(
                        "precision", f"{words} (--probe-allow={behaviour.name} accepts it)" if behaviour.name else words
                    )
                nearly = nearly or self._but_for(failed, behaviour, emulated)
        return nearly

    def _but_for(self, failed: FailedOutput, behaviour: Behaviour, emulated: Comparison) -> Cause | None:
        """What a mode explains but for a few elements, of which most are right without it."""
        evidence = emulated.evidence
        if not behaviour.rounds or not isinstance(evidence, SampledEvidence):
            return None
        wrong = outlying(emulated, evidence.samples)
        if not 0 < np.count_nonzero(wrong) <= _FEW * wrong.size or np.mean(wrong[failed.wrong]) > 0.5:
            return None
        where = regions.describe(wrong)
        return Cause("precision", f"{_like(behaviour)}, but for {'a few elements' if where == 'scattered' else where}")

    def _near(self, failed: FailedOutput, emulated: Comparison, behaviour: Behaviour) -> bool:
        if behaviour.sampled:
            return not isinstance(emulated.evidence, SampledEvidence) or _of_the_size(failed, emulated, behaviour)
        if behaviour.flushes:
            return not _still_wrong(failed, emulated)
        return not behaviour.rounds or is_as_large(failed.comparison, emulated, behaviour)


def _follows(failed: FailedOutput, behaviour: Behaviour) -> bool:
    """Is the output off where the mode moves it, and that way, more than its errors in another order are? Most modes
    pass by the size of their rounding, which random errors have as well; and next to a choice that a mode changes, as
    of an expert, any error is small. Sums in 16 bits have an order of their own: how far each element is off counts
    there, too."""
    if behaviour.cuts or behaviour.flushes or behaviour.centred:
        return True
    modes = behaviour.variants if behaviour.sampled else [replace(behaviour.variants[0], cut=cut) for cut in _CUTS]
    moved = list(filter(None, (_moved_by(failed, mode) for mode in modes)))
    for by, off in moved:
        found, errors = _correlation(by, off)
        if found > _FOLLOWS and errors > _CLEARLY:
            return True
    if not behaviour.sampled or failed.actual.size < _OF_MANY:
        return behaviour.sampled
    return any(_correlation(np.abs(by), np.abs(off))[1] > _SIZES_FOLLOW for by, off in moved)


def _moved_by(failed: FailedOutput, mode: Mode) -> tuple[Float64Array, Float64Array] | None:
    """By how much the mode moves elements, and by how much these are off, where it shows through the last rounding;
    None where it moves none."""
    other = failed.comparison.evidence.alternative(failed.comparison, Assumption(mode))
    if other is None:
        return None
    with np.errstate(invalid="ignore"):
        moved, off = np.asarray(other.expected, dtype=np.float64) - failed.expected, failed.actual - failed.rounded
    shown = np.abs(moved) > ulp(failed.expected, failed.comparison.actual.dtype) / 2
    usable = np.isfinite(moved) & np.isfinite(off) & shown
    return moved[usable], off[usable]


def _correlation(first: Float64Array, second: Float64Array) -> tuple[float, float]:
    """That of their ranks, and the same in its standard errors; 0 of few elements."""
    if first.size < _AMONG:
        return 0.0, 0.0
    ranks = [np.unique(side, return_inverse=True)[1].astype(np.float64) for side in (first, second)]
    first, second = (rank - rank.mean() for rank in ranks)
    square = float(np.dot(first, first) * np.dot(second, second))
    found = float(np.dot(first, second) / np.sqrt(max(square, 1.0)))
    return found, found * math.sqrt((first.size - 2) / max(1 - found**2, 1e-12))


def _like(behaviour: Behaviour) -> str:
    return f"{'has errors as large as with' if behaviour.sampled else 'behaves as'} {behaviour.description}"


def _still_wrong(failed: FailedOutput, emulated: Comparison) -> bool:
    """Is there a wrong element that flushing neither moves nor makes scatter nearly as far as its error? That is
    cheaper to tell than a verdict, which asks for many runs."""
    comparison, limit = failed.comparison, failed.verdict.metrics.get("noise_ratio_limit")
    if failed.verdict.standard != "noise" or not isinstance(limit, float) or emulated.expected.dtype.kind != "f":
        return False
    stays = (emulated.expected == comparison.expected) & (emulated.actual == comparison.actual)
    runs = emulated.evidence.perturbed(1)
    with np.errstate(invalid="ignore", over="ignore"):
        moved = np.maximum.reduce([np.abs(run - emulated.expected) for run in runs])
        if not np.isfinite(moved).all():
            return False
        scatter = np.maximum(moved, allowed_scale.root_mean_square(moved))
        error = np.abs(failed.actual - failed.expected)
        beyond = (error > _MORE * failed.allowed) & (error > _MORE * _WIDEST * limit * scatter)
    return bool(np.any(failed.wrong & stays & beyond))


def _of_the_size(failed: FailedOutput, emulated: Comparison, behaviour: Behaviour) -> bool:
    """Is the error as large as the sampled rounding, neither hidden in it nor above?"""
    actual, expected, runs = failed.comparison.actual, failed.comparison.expected, emulated.evidence.perturbed(4)
    looked_at = np.ones(actual.shape, bool)
    if behaviour.centred:
        # What is cut depends on the operands: where elements are wrong it is large. Results of 16 bits hide the rest.
        looked_at, runs = failed.wrong, [widen(round_to(run, actual.dtype)) for run in runs]
    size = float(np.median(np.maximum.reduce([np.abs(run - expected)[looked_at] for run in runs])))
    with np.errstate(invalid="ignore", over="ignore"):
        error = float(np.median(np.abs(actual.astype(expected.dtype) - expected)[looked_at]))
    # Chosen: a binade to either side. Of sampled rounding only the size is known.
    return size / 2 < error < size * 2


def narrower_result(failed: FailedOutput) -> Cause | None:
    """All numbers of the output are ones of a narrower dtype, next to the right ones."""
    # Rounding moves each element by another share of it.
    if not failed.floating or failed.uniform:
        return None
    used = np.isfinite(failed.actual) & (failed.actual != 0) & np.isfinite(failed.expected)
    actual, expected = failed.actual[used], failed.expected[used]
    if not has_distinct(actual, 2 * MIN_WRONG_ELEMENTS):
        return None
    bits = float_format(failed.comparison.precision).precision
    own = round_to(expected, failed.comparison.precision)
    for name in _NARROWER:
        dtype = numpy_dtype(name)
        if float_format(dtype).precision >= bits:
            continue
        if _on_grid(actual, dtype) < NEARLY_ALL or _on_grid(own, dtype) >= 0.5:
            continue
        near = np.abs(actual - expected) <= _REACH * ulp(expected, dtype) + failed.allowed[used]
        if np.mean(near) >= NEARLY_ALL:
            return Cause("precision", f"all results are {name} numbers: rounded to {name}")
    return None


def _on_grid(values: AnyArray, dtype: np.dtype[Any]) -> float:
    """The share of numbers that are numbers of a dtype."""
    return float(np.mean(np.asarray(round_to(values, dtype)) == values))


def one_step(failed: FailedOutput) -> Cause | None:
    """Nearly everything is the next number, to one side."""
    dtype, used = failed.comparison.actual.dtype, failed.expected != 0
    if failed.count < _MANY or not failed.floating or not used.any():
        return None
    rounded = np.asarray(round_to(failed.expected, dtype), dtype=np.float64)
    gap = ((failed.actual - rounded) / ulp(failed.expected, dtype))[used]
    cut = truncated(failed.expected, dtype) == failed.actual
    if np.mean(cut) >= NEARLY_ALL and np.count_nonzero(failed.wrong & cut) >= NEARLY_ALL * failed.count:
        return Cause("precision", f"cut towards zero to {dtype.name}, not rounded")
    # A factor moves some elements by a step, others by none, or by two.
    if not np.mean((np.abs(gap) >= 0.5) & (np.abs(gap) <= 1)) >= NEARLY_ALL:
        return None
    larger = gap * np.sign(rounded[used])
    sides = (("up", gap), ("away from zero", larger), ("towards zero", -larger), ("down", -gap))
    for words, side in sides:
        if np.mean(side > 0) >= NEARLY_ALL:
            return Cause("precision", f"one step {words}: rounded to the wrong side")
    return None


def integer_step(failed: FailedOutput) -> Cause | None:
    """Whole numbers that are one too low, too high, or one nearer to zero."""
    if (
        not MIN_WRONG_ELEMENTS <= failed.count < NEARLY_ALL * failed.wrong.size
        or failed.comparison.actual.dtype.kind == "b"
    ):
        return None
    actual, expected = failed.actual[failed.wrong], failed.expected[failed.wrong]
    gap = actual - expected
    if not np.mean((np.abs(gap) == 1) & (actual == np.rint(actual))) >= NEARLY_ALL:
        return None
    larger = np.sign(np.where(expected == 0, actual, expected))
    sides = (("lower", -gap), ("higher", gap), ("nearer to zero", -gap * larger), ("farther from zero", gap * larger))
    return next((Cause("offset", f"one {words}") for words, side in sides if np.mean(side > 0) >= NEARLY_ALL), None)


def rounded_inside(failed: FailedOutput) -> Cause | None:
    """Errors without direction, as small as those of a narrower dtype inside."""
    # Results of 16 bits hide most of it.
    least = failed.wrong.size / 4 if failed.comparison.precision.itemsize > 2 else 0
    if not failed.floating or failed.count < max(_MANY, least):
        return None
    finite = np.isfinite(failed.actual) & np.isfinite(failed.expected)
    if np.count_nonzero(finite) < NEARLY_ALL * finite.size:
        return None
    gap = np.where(finite, failed.actual - failed.expected, 0.0)
    own = np.abs(np.where(finite, failed.expected, 0.0))
    rms = float(np.sqrt(np.mean(failed.expected[finite] ** 2)))
    middles = (_middle(np.abs(gap)[failed.wrong] / unit[failed.wrong]) for unit in (np.maximum(own, rms), own))
    middle = next(filter(None, middles), None)
    if middle is None or _directed(gap, failed):
        return None
    narrow = failed.comparison.precision
    # Two operands rounded to p bits leave an RMS of 2^-p * 0.42 * sqrt(2), and 0.67 of that in the middle, beside
    # numbers a little above theirs.
    bits = max(1, round(-float(np.log2(middle)) - 1.5))
    source = f"operands with about {bits} bits" if narrow.itemsize > 2 else f"steps that are rounded to {narrow.name}"
    return Cause("precision", f"errors of {_share(middle)} of its size to either side, as large as those of {source}")


def _middle(sizes: AnyArray) -> float | None:
    """The middle one of errors that rounding inside may leave; None where they are of another size, or spread wide."""
    middle = float(np.median(sizes))
    return middle if _LEAST < middle < _MOST and np.quantile(sizes, 0.99) < _SPREAD * middle else None


def cancelled(failed: FailedOutput) -> Cause | None:
    """Errors that are as small next to 1 as roundings, and large next to small results: 1 was taken away, or added."""
    if not failed.floating or failed.count < _MANY:
        return None
    roundoff, own = float_format(failed.comparison.precision).roundoff, np.abs(failed.expected)
    gap, steps = np.abs(failed.actual - failed.expected), ulp(own, failed.comparison.precision)
    if not np.mean((gap <= 2 * roundoff + steps)[failed.wrong]) >= NEARLY_ALL:
        return None
    # Below a step of 1 results are zeros or no digits; above it errors are roundings to either side.
    shown = failed.wrong & (own > roundoff) & (gap > roundoff / _RISES)
    if np.median(own[failed.wrong]) > 1 / _RISES or np.count_nonzero(shown) < MIN_WRONG_ELEMENTS:
        return None
    if abs(float(np.mean(np.sign(failed.actual - failed.expected)[shown]))) > _BALANCED:
        return None
    return Cause("precision", f"off by up to {_share(float(gap[shown].max()))}, as small results of numbers near 1")


def _directed(gap: Float64Array, failed: FailedOutput) -> bool:
    """Do errors have a direction, or go on from one number to the next in size? In memory those of running sums do."""
    signs = np.sign(gap)
    orders = [
        np.argsort(values, axis=None, kind="stable") for name, values in failed.inputs() if values.shape == gap.shape
    ]
    orders.append(np.argsort(failed.expected, axis=None, kind="stable"))
    if abs(float(signs.mean())) > _BALANCED or abs(float((signs * np.sign(failed.expected)).mean())) > _BALANCED:
        return True
    runs = [signs.ravel()[order] for order in orders]
    return any(abs(float(np.mean(run[1:] * run[:-1]))) > _SMOOTH for run in runs)


def _share(size: float) -> str:
    return f"2^{round(np.log2(size))}"
