"""What rounding explains: between the kernels of a call, at each step of a formula, or as in the CPU's own kernel.

Nothing is granted for its size alone: the errors must have the signature of rounding.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
from msgspec.structs import replace

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.run import PRODUCTS, Composition
from pytest_probe.numerics import allowed_scale
from pytest_probe.numerics.dtypes import AnyArray, BoolArray, alike, round_to, ulp, widen
from pytest_probe.numerics.noise_ratio import Noise
from pytest_probe.numerics.rounding_signature import (
    SIZE_RMS,
    SIZE_RMS_UNNAMED,
    direction,
    scaled,
    too_far,
    unlike_rounding,
)
from pytest_probe.standards.noise import added_in_order, hidden_faults, stages
from pytest_probe.standards.noise.explanation import (
    STAGES,
    Examined,
    Explained,
    Stage,
    may_round_between,
    reaches_largest,
    rounds_each_sum,
)
from pytest_probe.standards.noise.stages import BETWEEN_STEPS

# Runs on moved inputs that sample what a call rounds between its kernels, beside one on the exact inputs: as many as
# the noise rule makes at most.
DRAWN = 4
# Where an element is farther off than these show, so many are drawn, and so much room is left. Few runs show badly how
# far one element scatters: a healthy attention is at up to 1.18 times their bound, and 0.93 times that of many runs.
MANY_DRAWN, ROOM = 16, 1.25
# The same, compared with one result.
ROOM_OF_ONE = 1.5
# A device may err so many times as much as the CPU's own kernel.
CPU_LARGEST, CPU_RMS = 2.0, 1.5
# A CPU result with a larger ratio has lost its digits: it excuses errors where it errs itself. Both err alike in an
# element by chance alone, hence the share of elements that may be above the limits where the CPU's is far below them.
LOST_DIGITS, BELOW, ALONE = 1000.0, 0.125, 0.02
# Half an ulp, and what the number that was rounded is off by itself.
LAST = 0.51
# Ulps beyond which an error counts by its sign.
CLIPPED = 4.0
# A sample tells of rounding inside where it is off by more than its last rounding, and by more than a scale of float32.
INSIDE = 4.0
# Where inner rounding moves one element by PLAIN ulps it moves many by more than their last rounding: RARE of the
# elements that it moves in a sample, at least. A kernel that rounds in fewer steps moves fewer elements.
PLAIN, RARE = 1.0, 0.125
# What is so much nearer to a run than to the reference comes from that run's steps, and the share of elements that do.
NEAR, MOST = 0.25, 0.5
# Scales that any other may be off by.
FARTHEST = 3.0


# Rows of the table.


def unstable_elements(output: Examined) -> Explained | None:
    """A device that chooses otherwise errs in fewer elements than are unstable, since not each jumps in a few runs; one
    that rounds between 16-bit kernels may err in all."""
    stage = output.judged_by
    wrong = int(np.count_nonzero(stage.noise.ratios > stage.limits.largest))
    unstable = 0 if stage.unstable is None else int(np.count_nonzero(stage.unstable))
    found = (
        f"{unstable:,} of {stage.noise.ratios.size:,} elements are unstable: they change abruptly when inputs change "
        "by a roundoff"
    )
    if wrong <= unstable:
        return Explained(stage, {"trouble": f"{found}; {stage.reason}"})
    output.trouble_words = f"{found}; of all elements {wrong:,} are above the limit: {stage.reason}"
    return None


def as_it_is(output: Examined) -> Explained | None:
    """Elements that nobody could judge are no pass."""
    return Explained(output.judged_by)


def constant(output: Examined) -> Explained | None:
    """A constant that was rounded to 16 bit between two steps moves all elements alike."""
    comparison = output.comparison
    evidence, stage = comparison.evidence, output.judged_by
    if stage.source == BETWEEN_STEPS or not evidence.narrow_steps(STAGES[-1]):
        return None
    stepped = stages.between_steps(comparison, evidence.perturbed(STAGES[-1]) + evidence.float32_steps(STAGES[-1]))
    fits = stepped.within_limits and hidden_faults.bias(comparison, stepped) is None
    return Explained(stepped) if fits else None


def as_cpu(output: Examined) -> Explained | None:
    """Another device may choose otherwise where elements are unstable, and round each sum as the CPU does."""
    stage = output.judged_by
    how = by_cpu_result(output.comparison, stage)
    return None if how is None else Explained(stage, {"how": how})


def by_autocast(output: Examined) -> Explained | None:
    """Kernels that give 16 bit inside a call whose results are float32: an autocast casts so."""
    kernels = output.comparison.evidence.narrow_kernels()
    if not kernels or unlike_composed_steps(output.comparison, output.judged_by, ["cast"]) != "":
        return None
    names = " and ".join(dict.fromkeys(kernels))
    values = {"kernels": names, "dtype": output.comparison.case.narrow, "trouble": output.trouble_words}
    return Explained(_by_rounding(output), values)


def between_kernels(output: Examined) -> Explained | None:
    """Each kernel of an accelerator rounds once, and a composed call has several."""
    comparison = output.comparison
    why_not = unlike_composed_steps(comparison, output.judged_by)
    if why_not and output.trouble != "unstable" and not comparison.case.on_cpu:
        output.why_not["between kernels"] = why_not
    return Explained(_by_rounding(output)) if why_not == "" else None


def stepwise(output: Examined) -> Explained | None:
    """Kernels of the framework's own that round each step of their formula, the output being nearly one such run."""
    if unlike_composed_steps(output.comparison, output.judged_by, ["stepwise"]) != "":
        return None
    return Explained(_by_rounding(output), {"dtype": output.comparison.case.narrow})


def at_borders(output: Examined) -> Explained | None:
    """The reference of a user, rounded where the user named a border."""
    why_not = unlike_borders(output.comparison, output.judged_by)
    if why_not:
        output.why_not["at its borders"] = why_not
    return Explained(_by_rounding(output)) if why_not == "" else None


def of_operands(output: Examined, *, carried: bool) -> Explained | None:
    """Tensor cores take operands of 16 bit, whatever the reference that a user wrote computes in. Borders that are
    named, and do not explain the output, leave nothing to this."""
    unexplained = "at its borders" in output.why_not
    if unexplained or unlike_rounded_operands(output.comparison, output.judged_by, carried=carried) != "":
        return None
    return Explained(_by_rounding(output))


def _by_rounding(output: Examined) -> Stage:
    """The stage, as one of 16-bit steps; unstable elements have been measured by another."""
    stage = output.judged_by
    return replace(stage, source=BETWEEN_STEPS) if stage.unstable is None else stage


# What they measure.


def unlike_composed_steps(
    comparison: Comparison, stage: Stage, kinds: Sequence[Composition] = ("composed", "separate")
) -> str | None:
    """Why rounding between kernels does not explain the output; "" where it does. stage is what it was judged by.

    None where the call rounds nowhere but at its end: one kernel computes in float32 and rounds once. Attention may be
    one fused kernel, or several.
    """
    why_not, evidence = None, comparison.evidence
    for how in kinds:
        # The reference's call as kernels of an accelerator make it, and what such kernels round on other inputs.
        exact = evidence.composed_steps(how)

        def samples_of(count: int, how: Composition = how, exact: list[AnyArray] = exact) -> list[AnyArray]:
            moved = evidence.composed_steps_moved(count, how) if exact else []
            return exact + _all_drawn(comparison, moved)

        samples = samples_of(DRAWN)
        if any(_rounds_inside(comparison, sample) for sample in samples):
            why_not = _unlike(comparison, stage, samples, samples_of)
            if not why_not and how in ("stepwise", "cast"):
                why_not = _unlike_runs(comparison, samples, PRODUCTS if how == "stepwise" else 1)
            if not why_not:
                break
    return why_not


def _unlike_runs(comparison: Comparison, samples: Sequence[AnyArray], count: int) -> str:
    """Why the output does not come from the steps of one run on exact inputs, as the first so many samples are; ""
    where most elements that are not the rounded reference are nearly that run's, and no other is far off."""
    wide, rounded, *exact = (
        widen(round_to(array, comparison.precision))
        for array in (comparison.actual, comparison.expected, *samples[:count])
    )
    with np.errstate(invalid="ignore"):
        error = np.abs(wide - rounded)
        rest = min((np.abs(wide - run) for run in exact), key=lambda left: np.count_nonzero(left > NEAR * error))
        usable = np.isfinite(comparison.expected) & np.isfinite(rest)
        others = [_error(comparison, sample, usable) for sample in samples]
        off, *_ = scaled(np.where(usable, rest, 0.0), others, comparison.expected, _ulps(comparison))
        far = off > FARTHEST
    found = np.count_nonzero(error > 0)
    near = np.count_nonzero((error > 0) & (rest <= NEAR * error))
    if near < MOST * found:
        return f"{near:,} of the {found:,} elements that are off are what the steps of the formula give"
    return f"{np.count_nonzero(far):,} elements are not what the steps of the formula give" if far.any() else ""


def unlike_borders(comparison: Comparison, stage: Stage) -> str | None:
    """Why rounding at the borders that the user named does not explain the output; "" where it does, None where no
    border is named, or none rounds anything. stage is what it was judged by."""
    evidence = comparison.evidence
    return _unlike_reference(comparison, stage, evidence.bordered(), evidence.bordered_moved)


def unlike_rounded_operands(comparison: Comparison, stage: Stage, *, carried: bool) -> str | None:
    """The same of rounding the operands of each product, in a reference that a user wrote: kernels of tensor cores take
    16 bit, whatever the reference computes in. carried: what a recurrence hands on is rounded as well."""
    evidence = comparison.evidence
    moved = functools.partial(evidence.rounded_operands_moved, carried=carried)
    return _unlike_reference(comparison, stage, evidence.rounded_operands(carried=carried), moved, SIZE_RMS_UNNAMED)


def _unlike_reference(
    comparison: Comparison,
    stage: Stage,
    exact: list[AnyArray],
    runs_moved: Callable[[int], list[AnyArray]],
    size_rms: float = SIZE_RMS,
) -> str | None:
    """Why the output is unlike runs of the reference that round at some places; None where they round nothing."""
    if not any(_rounds_inside(comparison, sample) for sample in exact):
        return None

    # The last kernel rounds as well.
    def samples_of(count: int) -> list[AnyArray]:
        first, moved = (_rounded(comparison, runs) for runs in (exact, runs_moved(count)))
        return [*first, *_all_drawn(comparison, moved)]

    return _unlike(comparison, stage, samples_of(DRAWN), samples_of, size_rms)


def _unlike(
    comparison: Comparison,
    stage: Stage,
    samples: Sequence[AnyArray],
    samples_of: Callable[[int], list[AnyArray]],
    size_rms: float = SIZE_RMS,
) -> str:
    """Why the output is unlike samples that round as a device may; "" where it is like them. Where an element is
    farther off than they lead it, more of samples_of show how far each element scatters."""
    wide, expected, unit = widen(comparison.actual), comparison.expected, _ulps(comparison)
    usable = np.isfinite(expected)
    if not (usable | _right_at_poles(comparison, stage, samples)).all():
        return "another value where the reference has an infinity or NaN"
    lost = usable & ~np.isfinite(wide)
    # A sample may overflow to the same infinity, or to two whose difference is NaN.
    if (lost & ~np.logical_or.reduce([alike(sample, wide) for sample in samples])).any():
        return "not finite where the reference is"
    usable &= ~lost
    errors = [_error(comparison, run, usable) for run in (wide, *samples)]
    own, *theirs = scaled(errors[0], errors[1:], expected, unit)
    ulps = [_in_ulps(comparison, error) for error in errors]
    why_not = (
        unlike_rounding(own, theirs, expected, size_rms)
        or direction(ulps[0], ulps[1:], expected, unit="ulps")
        or too_few_rounded(comparison, samples)
    )
    beyond = np.abs(errors[0]) > unit
    if why_not or not too_far(own, theirs, beyond, 1.0):
        return why_not
    own, *theirs = scaled(
        errors[0], [_error(comparison, run, usable) for run in samples_of(MANY_DRAWN)], expected, unit
    )
    return too_far(own, theirs, beyond, ROOM)


def _rounded(comparison: Comparison, runs: Sequence[AnyArray]) -> list[AnyArray]:
    return [widen(round_to(run, comparison.precision)) for run in runs]


def _all_drawn(comparison: Comparison, moved: Sequence[AnyArray]) -> list[AnyArray]:
    apart = comparison.evidence.neighbours(len(moved))
    return [_drawn(comparison, *pair) for pair in zip(moved, apart, strict=False)]


def _right_at_poles(comparison: Comparison, stage: Stage, samples: Sequence[AnyArray]) -> BoolArray:
    """Where the output is within the limits, or what the steps lead to from an infinity."""
    spread = allowed_scale.spread_of(samples, comparison.expected, comparison.actual.dtype)
    within = stage.noise.ratios <= stage.limits.largest
    if spread is None or not spread.disagree.any():
        return np.asarray(within)
    explained = spread.disagree & spread.explains(widen(comparison.actual), comparison.precision)
    return np.asarray(within | (explained & np.isinf(comparison.expected)))


def _drawn(comparison: Comparison, rounded: AnyArray, plain: AnyArray) -> AnyArray:
    """The reference with what was rounded on other inputs. What one last rounding explains there is one here, where the
    number may be much smaller."""
    expected, dtype = comparison.expected, comparison.precision
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        error = rounded - plain
        last = np.abs(error) <= ulp(plain, dtype) * LAST
        share = np.where(last, np.minimum(1.0, ulp(expected, dtype) / ulp(plain, dtype)), 1.0)
        drawn = np.where(np.isfinite(expected), expected + error * share, rounded)
        # Equal infinities have no difference, and two numbers say nothing of a pole.
        same = alike(rounded, plain)
        same |= np.isfinite(error) & ~np.isfinite(expected)
        return np.asarray(np.where(same, expected, drawn))


def _in_ulps(comparison: Comparison, errors: AnyArray) -> AnyArray:
    """Errors in ulps of the reference; larger ones count by their sign alone, since other steps rounded there."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.clip(errors / ulp(comparison.expected, comparison.precision), -CLIPPED, CLIPPED)


def _rounds_inside(comparison: Comparison, sample: AnyArray) -> bool:
    return bool(_rounded_inside(comparison, sample).any())


def _rounded_inside(comparison: Comparison, run: AnyArray) -> BoolArray:
    """Where a run is off by more than its last rounding."""
    return _off_by(comparison, run, LAST) | (np.isnan(run) & ~np.isnan(comparison.expected))


def _off_by(comparison: Comparison, run: AnyArray, ulps: float) -> BoolArray:
    """Where a run is off by more than so many ulps, and a few scales of float32."""
    expected = comparison.expected
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(run - expected) - ulps * ulp(expected, comparison.precision)
        return np.asarray(error > INSIDE * comparison.roundoff * np.abs(expected))


def far_from_steps(comparison: Comparison, samples: Sequence[AnyArray]) -> str:
    """Why an element is too far from the nearest of some samples and the reference; "" where none is. The first sample
    says how far rounding leads: on inputs as near as these all round alike."""
    if not samples:
        return ""
    wide, expected = widen(comparison.actual), comparison.expected
    nearest = allowed_scale.nearest_run(wide, [expected, *samples])
    usable = np.isfinite(expected) & np.isfinite(wide) & np.isfinite(nearest)
    rest = np.where(usable, np.where(usable, wide, 0.0) - np.where(usable, nearest, 0.0), 0.0)
    ulps = _ulps(comparison)
    own, *theirs = scaled(rest, [_error(comparison, samples[0], usable)], expected, ulps)
    return too_far(own, theirs, np.abs(rest) > ulps, ROOM_OF_ONE)


def too_few_rounded(comparison: Comparison, samples: Sequence[AnyArray]) -> str:
    """Why a few wrong elements do not come from inner rounding, where almost all others are rounded once; "" where they
    may."""
    wide = widen(comparison.actual)
    found = np.count_nonzero(_rounded_inside(comparison, wide))
    usual = min((np.count_nonzero(_rounded_inside(comparison, sample)) for sample in samples), default=0)
    if found >= RARE * usual or not _off_by(comparison, wide, PLAIN).any():
        return ""
    return f"{found:,} of {wide.size:,} elements are off by more than one rounding, rounding inside gives {usual:,}"


def _error(comparison: Comparison, run: AnyArray, usable: BoolArray) -> AnyArray:
    with np.errstate(invalid="ignore", over="ignore"):
        error = run - comparison.expected
    return np.where(usable & np.isfinite(error), error, 0.0)


def _ulps(comparison: Comparison) -> AnyArray:
    """Of the reference; 1 where it is no number."""
    found = ulp(comparison.expected, comparison.precision)
    return np.where(np.isfinite(found), found, 1.0)


def noise_of_cpu_result(comparison: Comparison, stage: Stage) -> Noise | None:
    """The noise of the framework's own CPU kernel in the case's dtype; None where it has none. What is not finite is
    none."""
    result = comparison.evidence.cpu_result()
    if result is None or result.dtype != comparison.actual.dtype:
        return None
    theirs = widen(result)
    return stages.noise_beside(comparison, stage, np.where(np.isfinite(theirs), theirs, comparison.expected))


def by_cpu_result(comparison: Comparison, stage: Stage) -> str | None:
    """Why the output passes beside the framework's own CPU kernel in the case's dtype; None where it does not.

    What that kernel makes NaN, or of another dtype, says nothing; an overflow excuses an overflow of its sign. NaN does
    where known 16-bit steps give NaN as well, or no step of the kernel is known: it is the difference of two sums that
    overflow. Where the reference has an infinity, a device may have the value that the kernel has. Of a reference that
    rounds inside its steps tell more.
    """
    result = comparison.evidence.cpu_result()
    if result is None or result.dtype != comparison.actual.dtype or comparison.case.rounds:
        return None
    theirs, wide = (_less_jumps(comparison, stage, widen(run)) for run in (result, comparison.actual))
    if stage.unstable is not None:
        comparison, stage = replace(comparison, actual=wide.astype(comparison.actual.dtype)), _without_jumps(stage)
    number = np.isfinite(comparison.expected)
    same = ((theirs == wide) & ~np.isnan(comparison.expected)) | (np.isnan(theirs) & np.isnan(wide))
    alike = np.where(number, (np.isinf(theirs) & (theirs == wide)) | _lost_in_steps(comparison, theirs), same)
    # What it has in place of an infinity says nothing about numbers.
    # Nor does what it loses by adding one term after another, which may be far less than what it rounds to 16 bit.
    scale = stages.scale_of(comparison, stage.spread)
    lost = added_in_order.lost_on_cpu(comparison, scale)
    theirs = np.where(number & np.isfinite(theirs), theirs - lost, comparison.expected)
    ours = stages.noise_beside(comparison, stage, np.where(alike, comparison.expected, wide))
    if ours.within(stage.limits):
        return "the CPU's own kernel overflows as well"
    seen = stages.noise_beside(comparison, stage, theirs)
    if not (ours.largest <= CPU_LARGEST * seen.largest and ours.rms <= CPU_RMS * seen.rms):
        return None
    if seen.largest > LOST_DIGITS:
        above = ours.ratios > stage.limits.largest
        if np.count_nonzero(above & (seen.ratios < BELOW * ours.ratios)) > ALONE * np.count_nonzero(above):
            return None
    usable = np.isfinite(comparison.expected) & np.isfinite(wide)
    samples = [theirs, *(_less_jumps(comparison, stage, run) for run in comparison.evidence.narrow_steps(DRAWN))]
    errors = [_error(comparison, run, usable) for run in (wide, *samples)]
    if len(samples) > 1:  # one sample does not show how an element scatters
        own, *others = scaled(errors[0], errors[1:], comparison.expected, _ulps(comparison))
    else:
        own, *others = (np.where(usable, error / scale, 0.0) for error in errors)
    if unlike_rounding(own, others, comparison.expected) or far_from_steps(comparison, samples):
        return None
    if may_round_between(comparison) and too_few_rounded(comparison, samples):
        return None
    return f"the CPU's own kernel has as large an error ({seen.largest:,.4g})"


def _without_jumps(stage: Stage) -> Stage:
    """The stage where unstable elements grant the others nothing."""
    if stage.unstable is None or stage.spread is None:
        return stage
    return replace(stage, spread=replace(stage.spread, size=np.where(stage.unstable > 0, 0.0, stage.spread.size)))


def _less_jumps(comparison: Comparison, stage: Stage, values: AnyArray) -> AnyArray:
    """Values, nearer to the reference by as much as unstable elements jump."""
    if stage.unstable is None:
        return values
    with np.errstate(invalid="ignore", divide="ignore"):
        off = values - comparison.expected
        nearer = values - off * np.minimum(stage.unstable / np.abs(off), 1.0)
    return np.asarray(np.where((stage.unstable > 0) & (off != 0), nearer, values))


def _lost_in_steps(comparison: Comparison, theirs: AnyArray) -> BoolArray:
    """Where the output, the CPU's result and all of its known 16-bit steps are NaN; of some kernels none is known, and
    their sums must be able to overflow."""
    lost = np.isnan(theirs) & np.isnan(widen(comparison.actual))
    if lost.any() and not (comparison.case.narrow and rounds_each_sum(comparison) and reaches_largest(comparison)):
        samples = comparison.evidence.narrow_steps(DRAWN) if comparison.case.narrow else []
        lost &= np.logical_and.reduce([np.isnan(sample) for sample in samples]) if samples else False
    return lost
