"""Errors that a device makes by intent, such as TF32 or flushing to zero.

In: a comparison above its limits. Out: its verdict under the modes that the user allows, or the mode that would explain
it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.errors import Unsupported
from pytest_probe.model.comparison import Assumption, Comparison, Evidence, RunKind
from pytest_probe.model.device_modes import Behaviour, Mode
from pytest_probe.model.verdict import TABLE_METRIC, OutputVerdict
from pytest_probe.numerics import noise_ratio
from pytest_probe.numerics.dtypes import SMALLEST_FLOAT32, AnyArray, BoolArray, is_complex, is_floating, round_to, widen
from pytest_probe.numerics.noise_ratio import Spread
from pytest_probe.numerics.rounding_signature import direction, place_of
from pytest_probe.numerics.ulp import truncated, ulp
from pytest_probe.standards.base import Standard
from pytest_probe.standards.exact import correctly_rounded
from pytest_probe.standards.noise.stages import Measured, scale_of
from pytest_probe.standards.noise.standard import decide
from pytest_probe.standards.noise.summed_terms import may_use_winograd, summed_terms

# Samples of rounded operands: few, and where these do not explain an output as many as tell chance from a fault.
_SAMPLES = (8, 16)
# How many times as large errors may be as those of samples, in RMS and mean: the first for few samples. The largest in
# units of the RMS, for few samples, and as a multiple of that of samples. Chosen: where there are many, chance gives
# more in less than one output of 10^5.
_SIZE, _OUTLYING = (1.25, 2.5), (6.0, 2.0)
# The share of the RMS scale that each element is granted: 16 samples seldom agree by chance.
_SHARED = 2.0**-10
# Of the size of a variant's samples: what is larger no other variant explains, and what is smaller is none with tiles.
_TOO_LARGE, _TOO_SMALL = 200.0, 0.6
# The share of what cut operands lose that counts as all of it.
_ALL = 0.75
# How much larger or smaller in the middle errors are than a mode's. Chosen: HF32's are half of TF32's.
_ALIKE = 1.5
# Sampled rounding is what the device does, but for where: limits of 8 and 1.
_SAMPLED_RMS = 1.0
# Rounding has no direction: a common factor this many times its standard error away from 1 is something else.
_SCALED_T = 6.0
# Of the share of elements that the mode would change. Chosen: a device that rounds so changes about as many, one that
# does not changes next to none.
_IN_USE = 0.25
# What one element leaves to others at least in deciding a factor.
_DECIDES = 1e-3
# Roundoffs that a kernel may be off by before it cuts, and runs that say where it is more, as many as the noise rule's.
_REACH, _CUT_RUNS = 4.0, 4
# How often what samples lose an output may have lost.
_MOST_LOST = 2.0
# Least share of what samples lose that an output shows where it was cut, and standard errors that it is away from zero,
# or that the share of the right sample is away from 1.
# Chosen: a device that cuts at one bit later loses half; sums that are rounded to nearest lose nothing on average.
_LEAST_LOST, _SHARE_ERRORS = 0.15, 4.0
# What rounds to the smallest normal number may as well be below it.
_BORDER = 1.01


def under_modes(
    standard: Standard, comparison: Comparison, verdict: OutputVerdict, allowed: Sequence[Behaviour]
) -> OutputVerdict | None:
    """The verdict where an allowed mode explains the output: pass, with the mode's name as a metric.

    Raises Unsupported for gradients of factors under a mode that rounds operands: a device knows factors less precisely
    than any tie between such operands, so that its own go another way than the emulated ones.
    """
    if TABLE_METRIC in verdict.metrics:
        return None  # within limits without a mode
    for behaviour in allowed:
        for emulated in emulations(comparison, behaviour):
            found = judge_emulated(standard, emulated)
            if found is not None and found.verdict == "pass":
                reason = (
                    f"as {behaviour.name} ({behaviour.words}): {metrics_text(found)} instead of {metrics_text(verdict)}"
                )
                return replace(found, reason=reason, metrics={**found.metrics, "mode": behaviour.name})
    of_factors = comparison.direction == "backward" and "factorisation" in comparison.classes
    if of_factors and any(behaviour.rounds and _concerns(comparison, behaviour) for behaviour in allowed):
        raise Unsupported(f"{comparison.name}: {verdict.reason}, under a mode that rounds factors", "rounded factors")
    return None


def judge_emulated(standard: Standard, comparison: Comparison) -> OutputVerdict | None:
    """The verdict; None where the standard has none for such a reference."""
    with contextlib.suppress(Unsupported):
        found, evidence = standard.judge(comparison), comparison.evidence
        if found.verdict == "pass" and isinstance(evidence, _SampledEvidence) and evidence.signed:
            trouble = _unlike_samples(comparison)
            return replace(found, verdict="error", reason=trouble) if trouble else found
        return found
    return None


def _of_rounded_operands(comparison: Comparison, variants: Sequence[Mode]) -> Iterator[Comparison]:
    """The comparison with each variant's rounding among its runs, of which few are made first; then nearer to what
    operands give that are cut."""
    granted: AnyArray | None = None
    for mode in variants:
        if mode.tiles and not (may_use_winograd(comparison) and comparison.call.argument("groups") == 1):
            return
        samples: list[AnyArray] = []
        for count in _SAMPLES:
            samples += _samples(comparison, [mode] * (count - len(samples)), len(samples))
            if len(samples) < count:
                return  # no products in this call
            granted = _explained_inside(comparison) if granted is None else granted
            found = [
                _with_samples(_moved_by(comparison, by), [run + by for run in samples], signed=True)
                for by in _shifts(comparison, mode)
            ]
            sizes = [relative_size(each) for each in found]
            if min(sizes) > _TOO_LARGE:
                return
            for each, size in zip(found, sizes, strict=True):
                if not mode.tiles or size > _TOO_SMALL:
                    yield _nearer(each, granted)


def _shifts(comparison: Comparison, mode: Mode) -> Iterator[AnyArray]:
    """None of the reference; and what products of cut operands are smaller by, as much of it as the output is: on
    average, and element by element where nothing is transformed."""
    yield np.zeros(comparison.expected.shape)
    cut = _cut_operands(comparison, mode)
    if cut is None:
        return
    with np.errstate(invalid="ignore"):
        lost = cut.expected - comparison.expected
    factor = fitted_factor(replace(comparison, actual=cut.expected))[0] - 1
    shifts = [np.clip(fitted_factor(comparison)[0] - 1, min(factor, 0.0), 0.0) * comparison.expected]
    if not mode.tiles:
        share = _share_of_cut(comparison, cut)
        shifts.append((1.0 if share > _ALL else share) * lost)
    found = (np.where(np.isfinite(by), by, 0.0) for by in shifts)
    yield from (by for by in found if by.any())


def _cut_operands(comparison: Comparison, mode: Mode) -> Comparison | None:
    return comparison.evidence.alternative(comparison, Assumption(replace(mode, rounding="zero")))


def _share_of_cut(comparison: Comparison, cut: Comparison) -> float:
    """How much an output shows of what it loses where operands are cut."""
    expected, actual, other = (_parts(each) for each in (comparison.expected, widen(comparison.actual), cut.expected))
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.maximum(np.abs(other - expected), ulp(expected, comparison.precision) / 2)
        return float(np.clip(_share((other - expected) / size, (actual - expected) / size)[0], 0.0, 1.0))


def is_as_large(comparison: Comparison, emulated: Comparison, behaviour: Behaviour) -> bool:
    """Are errors as large as where operands are rounded, and neither hidden in that nor above?"""
    if emulated.expected is comparison.expected:
        return 1 / _ALIKE < relative_size(replace(emulated, actual=comparison.actual)) < _ALIKE
    cut = _cut_operands(comparison, behaviour.variants[0])
    return cut is not None and _share_of_cut(comparison, cut) > 1 / _ALIKE


def _samples(comparison: Comparison, modes: Sequence[Mode], first: int = 0) -> list[AnyArray]:
    """What modes give, each in a sample of its rounding; fewer where one changes nothing."""
    found = (
        comparison.evidence.alternative(comparison, Assumption(mode, sample=index))
        for index, mode in enumerate(modes, first)
    )
    return [other.expected for other in found if other is not None]


def _explained_inside(comparison: Comparison) -> AnyArray:
    """What the arithmetic inside explains of each error: little next to a mode's rounding, but where many terms of one
    sign are summed."""
    stage = decide(comparison, Measured())
    return stage.limits.largest * scale_of(comparison, stage.spread)


def _nearer(comparison: Comparison, granted: AnyArray) -> Comparison:
    """The comparison to an output that is nearer to the reference by that, at most."""
    with np.errstate(invalid="ignore", over="ignore"):
        error = widen(comparison.actual) - comparison.expected
        rest = error * np.maximum(0.0, 1 - granted / np.maximum(np.abs(error), granted))
        actual = round_to(comparison.expected + rest, comparison.actual.dtype)
    return replace(comparison, actual=np.where(np.isfinite(rest), actual, comparison.actual))


def relative_size(comparison: Comparison) -> float:
    """How large errors are beside those of the mode's samples, in the middle and but for a common factor."""
    errors, *samples = (np.abs(errors) for errors in _errors(_unscaled(comparison)))
    moved = np.maximum.reduce(samples) > 0
    if not moved.any():
        return math.inf
    return float(np.median(errors[moved]) / np.median(np.stack(samples)[:, moved]))


def _unscaled(comparison: Comparison) -> Comparison:
    """The comparison of an output without the factor that its middle element has."""
    usable = np.isfinite(comparison.expected) & (comparison.expected != 0) & np.isfinite(widen(comparison.actual))
    if not usable.any():
        return comparison
    actual, expected = widen(comparison.actual), np.where(usable, comparison.expected, 0.0)
    factor = float(np.median((actual[usable] / expected[usable]).real)) - 1
    return replace(comparison, actual=actual - expected * factor)


def _errors(comparison: Comparison) -> list[AnyArray]:
    """The errors of the output and of its samples, real and imaginary parts apart; 0 where one of both is no number."""
    assert isinstance(comparison.evidence, _SampledEvidence)
    expected = _parts(comparison.expected)
    with np.errstate(invalid="ignore", over="ignore"):
        found = [_parts(run) - expected for run in (widen(comparison.actual), *comparison.evidence.samples)]
    usable = np.isfinite(found[0])
    return [np.where(usable & np.isfinite(errors), errors, 0.0) for errors in found]


def _parts(values: AnyArray) -> AnyArray:
    return np.stack([values.real, values.imag], -1) if is_complex(values.dtype) else values


def _unlike_samples(comparison: Comparison) -> str:
    """Why errors are unlike samples of the mode's rounding: by their size, a direction or a place."""
    scaled = _scaled(comparison)
    most = _SIZE[len(scaled) > max(_SAMPLES)]
    sizes = [noise_ratio.root_mean_square(np.abs(each)) for each in scaled]
    if sizes[0] > most * max(sizes[1:]):
        return f"RMS {sizes[0]:.3g} noise scales of the mode, its rounding gives {max(sizes[1:]):.3g}"
    largest = [float(np.abs(each).max()) for each in scaled]
    if largest[0] > _farthest(scaled):
        usual = max(largest[1:])
        return f"an element is off by {largest[0]:.3g} noise scales of the mode, its rounding gives {usual:.3g}"
    expected = _parts(comparison.expected)
    values = np.where(np.isfinite(expected), expected, 0.0)
    directed = direction(scaled[0], scaled[1:], values, mean_of=most)
    return directed or place_of(scaled[0], scaled[1:], max(sizes))


def outlying(comparison: Comparison) -> BoolArray:
    """Elements of an output that are farther off than the mode's rounding gives, beside samples of it."""
    scaled = _scaled(comparison)
    return np.asarray(np.abs(scaled[0]) > _farthest([np.zeros(1), *scaled[1:]]))


def _farthest(scaled: Sequence[AnyArray]) -> float:
    """How far an element may be off. What is more precise than the mode may err as that does in places."""
    sizes = [noise_ratio.root_mean_square(np.abs(each)) for each in scaled]
    if len(scaled) <= max(_SAMPLES):
        return _OUTLYING[0] * max(sizes)
    tails = [float(np.abs(each).max()) / max(size, 1e-300) for each, size in zip(scaled[1:], sizes[1:], strict=True)]
    return _OUTLYING[1] * max(tails) * max(sizes)


def _scaled(comparison: Comparison) -> list[AnyArray]:
    """The errors of the output and of its samples in units of A; each sample is measured by the others."""
    errors = _errors(comparison)
    second, first = np.sort(np.abs(np.stack(errors[1:])), axis=0)[-2:]
    own, others = (_scale(comparison, size) for size in (first, second))
    return [errors[0] / own, *(each / np.where(np.abs(each) < first, own, others) for each in errors[1:])]


def _scale(comparison: Comparison, size: AnyArray) -> AnyArray:
    """A, from the largest errors of samples."""
    expected, dtype, roundoff = _parts(comparison.expected), comparison.precision, comparison.roundoff
    return noise_ratio.scale(expected, Spread.of(size), dtype=dtype, roundoff=roundoff, floor=_SHARED)


def emulations(comparison: Comparison, behaviour: Behaviour) -> Iterator[Comparison]:
    """The comparison as each variant of a mode answers it; none where the mode changes nothing in this call."""
    if not _concerns(comparison, behaviour):
        return
    if behaviour.sampled:
        yield from _sampled(comparison, behaviour)
        return
    if behaviour.cuts:
        yield _cut(comparison)
        return
    if behaviour.flushes:
        yield from _flushed(comparison, behaviour.variants)
        return
    yield from _of_rounded_operands(comparison, behaviour.variants)


def _cut(comparison: Comparison) -> Comparison:
    """The comparison to a device that cuts: what float32 inside may have come to, cut, counts as rounded."""
    expected, dtype = comparison.expected, comparison.precision
    near = _REACH * comparison.roundoff * np.abs(expected)
    reached = [expected - near, expected + near, *comparison.evidence.perturbed(_CUT_RUNS)]
    ends = [truncated(value, dtype) for value in (np.minimum.reduce(reached), np.maximum.reduce(reached))]
    wide = widen(comparison.actual)
    cut = (wide >= ends[0]) & (wide <= ends[1])
    actual = np.where(cut, round_to(expected, dtype), comparison.actual).astype(comparison.actual.dtype)
    return replace(comparison, actual=actual, allowance=replace(comparison.allowance, emulated=True))


def _flushed(comparison: Comparison, variants: Sequence[Mode]) -> Iterator[Comparison]:
    """The comparison to a device that may flush at any step, or at none: vectors and the rest of a loop differ.

    Of each element that reference counts which is nearest. What is subnormal in the arguments and in the output is
    zero, so that what was copied may stay, and equal zeros may trade places.
    """
    found = [comparison.evidence.alternative(comparison, Assumption(mode)) for mode in variants]
    others = [other for other in found if other is not None]
    call = comparison.call.mapped(_zeroed)
    if comparison.actual.dtype.kind in "iub":
        # Without an emulation too: the zeroed arguments alone may explain a choice.
        emulated = replace(comparison, allowance=replace(comparison.allowance, emulated=True))
        yield from (other.of_call(call) for other in (*others, emulated))
        return
    values = [comparison.expected, *(other.expected for other in others)]
    # Zero and the subnormal number are both right there.
    small = np.minimum.reduce([np.abs(value) for value in values]) < SMALLEST_FLOAT32 * _BORDER
    actual = np.where(small, _zeroed(comparison.actual), comparison.actual)
    values.append(np.where(small, 0.0, comparison.expected))
    expected = noise_ratio.nearest_run(actual, values)
    evidence = _FlushedEvidence(comparison, others, values, expected)
    allowance = replace(comparison.allowance, emulated=True, lost=SMALLEST_FLOAT32)
    flushed = replace(comparison, actual=actual, expected=expected, evidence=evidence, allowance=allowance)
    yield flushed.of_call(call)


class _FlushedEvidence(Evidence, Struct, frozen=True):
    """Runs of the reference and of its emulations, each as far from `expected` as it is from its own reference. values
    are those that the device may have come to."""

    comparison: Comparison
    others: Sequence[Comparison]
    values: list[AnyArray]
    expected: AnyArray

    def runs(self, kind: RunKind, count: int) -> list[AnyArray]:
        sides = (self.comparison, *self.others)
        made = [_moved(run, each.expected, self.expected) for each in sides for run in each.evidence.runs(kind, count)]
        return [*made, self.expected + self._lost()] if kind == "perturbed" and count else made

    def _lost(self) -> float:
        """A sum loses terms below the smallest normal number on its way, though neither operands nor results tell. The
        largest error that passes is that of all terms."""
        terms = summed_terms(self.comparison).count
        return SMALLEST_FLOAT32 * min(1.0, terms / noise_ratio.LARGEST) if terms > 1 else 0.0

    def cpu_result(self) -> AnyArray | None:
        """The CPU's kernel flushes nothing: it errs from the value that is nearest to its own."""
        own = self.comparison.evidence.cpu_result()
        if own is None:
            return None
        return _moved(widen(own), noise_ratio.nearest_run(own, self.values), self.expected)


def _moved(values: AnyArray, source: AnyArray, target: AnyArray) -> AnyArray:
    """Values as far from the target as they are from the source; what is not finite stays."""
    with np.errstate(invalid="ignore", over="ignore"):
        moved = target + (values - source)
    return np.asarray(np.where(np.isfinite(values) & np.isfinite(source), moved, values))


def _zeroed(value: Any) -> Any:
    """An array with zeros for subnormal numbers; anything else as it is."""
    if not isinstance(value, np.ndarray) or not is_floating(value.dtype):
        return value
    return np.where(np.abs(widen(value)) < SMALLEST_FLOAT32, np.zeros_like(value), value)


def _concerns(comparison: Comparison, behaviour: Behaviour) -> bool:
    chosen = comparison.precision.kind in "iub" and behaviour.flushes
    if comparison.precision.name not in behaviour.dtypes and not chosen:
        return False
    if behaviour.classes and behaviour.classes.isdisjoint(comparison.classes):
        return False
    if not behaviour.others.isdisjoint(comparison.classes):
        return False
    return behaviour.sampled or not (comparison.case.narrow and behaviour.rounds)


def _sampled(comparison: Comparison, behaviour: Behaviour) -> Iterator[Comparison]:
    """The comparison with the mode's own rounding among its runs, and limits as close as sampled rounding deserves."""
    scaled, variants = _is_scaled(comparison), behaviour.variants
    if scaled and not behaviour.centred and not all(mode.approximate for mode in variants):
        return
    samples = _samples(comparison, variants)
    # A common factor, or an output that the mode left as it was, is no sampled rounding.
    if not samples or not _in_use(comparison, samples):
        return
    if behaviour.centred:
        yield from _cut_sums(comparison, samples)
    elif not scaled or _approximated(comparison, samples):
        yield _with_samples(comparison, samples)


def _with_samples(comparison: Comparison, samples: list[AnyArray], *, signed: bool = False) -> Comparison:
    # Both limits shrink by what brings that of the RMS to _SAMPLED_RMS, but where errors must have a signature.
    close = (
        1.0 if signed else _SAMPLED_RMS / (noise_ratio.ELEMENTWISE_RMS if comparison.elementwise else noise_ratio.RMS)
    )
    allowance = replace(comparison.allowance, factor=comparison.allowance.factor * close, emulated=True)
    evidence = _SampledEvidence(comparison.evidence, list(samples), signed)
    return replace(comparison, evidence=evidence, allowance=allowance)


def _cut_sums(comparison: Comparison, samples: list[AnyArray]) -> Iterator[Comparison]:
    """The comparison to each sample that the output may be, to the last place; then with what the nearest one loses
    added to the reference, as much of it as the output shows: what a device cuts differs from one generation to the
    next. That only where it is shown beyond chance: few elements, or ones of 16 bits, may lie as far off otherwise."""
    expected, dtype = comparison.expected, comparison.actual.dtype
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        losses = [sample - expected for sample in samples]
        # What an element may be off by: what is cut, and the rounding of the result.
        size = np.maximum(np.max(np.abs(losses), axis=0), ulp(expected, dtype) / 2)
        found = (widen(comparison.actual) - expected) / size
        shown = [_share(loss / size, found) for loss in losses]
    order = sorted(range(len(losses)), key=lambda place: -shown[place][0] / shown[place][1])
    for place in order:
        if abs(shown[place][0] - 1) <= _SHARE_ERRORS * shown[place][1]:
            allowance = replace(comparison.allowance, emulated=True)
            yield replace(_moved_by(comparison, losses[place]), allowance=allowance)
    share, error = shown[order[0]]
    if share >= max(_LEAST_LOST, _SHARE_ERRORS * error):
        by = np.clip(share, 0.0, _MOST_LOST) * losses[order[0]]
        yield _with_samples(_moved_by(comparison, by), samples)


def _moved_by(comparison: Comparison, by: AnyArray) -> Comparison:
    by = np.where(np.isfinite(by), by, 0.0)
    if not by.any():
        return comparison
    evidence = comparison.evidence.transformed(lambda run: run + by)
    return replace(comparison, expected=comparison.expected + by, evidence=evidence)


def _share(lost: AnyArray, found: AnyArray) -> tuple[float, float]:
    """How much of a loss an output shows, by least squares, and the standard error of that."""
    usable = np.isfinite(lost) & np.isfinite(found)
    lost, found = lost[usable], np.clip(found[usable], -_MOST_LOST, _MOST_LOST)
    square = max(np.dot(lost, lost), 1e-300)
    share = np.dot(lost, found) / square
    rest = found - share * lost
    return float(share), float(np.sqrt(max(np.dot(rest, rest), 1e-300) / max(rest.size, 1) / square))


class _SampledEvidence(Evidence, Struct, frozen=True):
    """Another evidence's runs, and samples of a mode's rounding among the perturbed ones. signed: errors must have the
    signature of these."""

    source: Evidence
    samples: list[AnyArray]
    signed: bool

    def runs(self, kind: RunKind, count: int) -> list[AnyArray]:
        if kind == "perturbed_less":
            return []  # samples do not shrink with the inputs: next to them each element would seem to jump
        plain = self.source.runs(kind, count)
        shown = self.samples if self.signed and count else self.samples[:count]
        return plain + shown if kind == "perturbed" else plain

    def alternative(self, comparison: Comparison, assumption: Assumption) -> Comparison | None:
        return self.source.alternative(comparison, assumption)


def has_samples(comparison: Comparison) -> bool:
    """Does only the size of its sampled rounding explain the output?"""
    return isinstance(comparison.evidence, _SampledEvidence)


def _in_use(comparison: Comparison, samples: Sequence[AnyArray]) -> bool:
    """Does the output differ from the correctly rounded reference about as often as the mode makes it? Where most of
    it does not, the mode was not in use, and does not explain the rest."""
    wanted = correctly_rounded(comparison.expected, comparison.actual.dtype)
    usual = np.mean([np.mean(round_to(sample, comparison.actual.dtype) != wanted) for sample in samples])
    return bool(np.mean(comparison.actual != wanted) >= _IN_USE * usual)


def _approximated(comparison: Comparison, samples: Sequence[AnyArray]) -> bool:
    """Is the common factor within what an approximation errs by? Its error hangs on the argument and not on chance, so
    that it need not have a mean of zero."""
    usable = np.isfinite(comparison.expected) & (comparison.expected != 0)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        errors = [np.abs(sample / comparison.expected - 1)[usable] for sample in samples]
    usual = noise_ratio.root_mean_square(np.concatenate(errors))
    return abs(fitted_factor(comparison)[0] - 1) <= usual


def _is_scaled(comparison: Comparison) -> bool:
    """Is the output the reference times a number that is not 1, beyond what chance gives?"""
    factor, error = fitted_factor(comparison)
    return abs(factor - 1) > _SCALED_T * error


def fitted_factor(comparison: Comparison) -> tuple[float, float]:
    """The number that the reference is to be multiplied by to come nearest to the output, and its standard error."""
    actual, expected = _parts(comparison.actual.astype(comparison.expected.dtype)), _parts(comparison.expected)
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


def metrics_text(verdict: OutputVerdict) -> str:
    """Largest and RMS noise ratio of a verdict, "17,600 / 2,130"; the share that differs where it has none."""
    ratios = [verdict.metrics.get(name) for name in ("noise_ratio", "noise_rms")]
    if None in ratios:
        return f"{100 * float(verdict.metrics.get('mismatch', 0.0)):.3g} % different"
    return " / ".join(short(float(ratio)) for ratio in ratios if ratio is not None)


def short(value: float) -> str:
    """A number with three digits that mean something, "17,600"."""
    return f"{float(f'{value:.3g}'):,g}"
