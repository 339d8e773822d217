"""The noise of an output compared with a spread of runs, and the limits of that: what rows of the table measure."""

from __future__ import annotations

import math

import numpy as np
from msgspec.structs import replace

from pytest_probe.model.comparison import Comparison
from pytest_probe.numerics import allowed_scale, noise_ratio
from pytest_probe.numerics.allowed_scale import Spread
from pytest_probe.numerics.dtypes import SMALLEST_FLOAT32, WIDE_DTYPES, AnyArray, widen
from pytest_probe.numerics.noise_ratio import Limits, Noise
from pytest_probe.numerics.statistics import design_effect
from pytest_probe.standards.noise import added_in_order
from pytest_probe.standards.noise.explanation import STAGES, Stage, may_choose
from pytest_probe.standards.noise.summed_terms import may_use_winograd, summed_terms

# What results say in scale_from; decide() and the biases ask for them.
STEPS_SOURCE = "steps"
AMONG_THEMSELVES = "float32 among themselves"
EQUAL_TERMS = "steps, equal terms"
BETWEEN_STEPS = "16-bit steps"
# How the reason begins where a formula of the framework's own, rounded at each step, gives the output.
EACH_STEP = "rounds each step in"
# Roundoffs of the reference's RMS, in the scale of elements that no run moves from zero. An FFT errs by 2 or 3 of them
# there, by 64 times the scale at most; a mask of -10 leaks 750.
FLOOR_OF_UNMOVED = 0.25
# A kernel may clip exponents before it takes exponentials, as Paddle's of softmax does at this one: what a mask hides
# is this small, but no zero.
CLIPPED = math.exp(-64)
# Kernels whose 16-bit steps are not known: inputs perturbed by a roundoff of the dtype sample them.
INSIDE_LIMITS = Limits(16.0, 2.0)
# Kernels whose steps are written down: a healthy one differs from them where a rounding falls to the other side. Where
# that is rare no element is far off.
STEPS = Limits(16.0, 0.5)
# The RMS limit of many elements: attention whose weights are rounded before they are divided by their sum reaches 0.55.
STEPS_OF_MANY = 0.6
# The largest ratio that is granted always, and that in units of the other elements' RMS. Chosen: with them no healthy
# output in docs/evidence.md is flagged.
STEPS_LEAST, STEPS_SHARE = 5.0, 60.0
# Another order of a sum may lose so many times what float32 loses when it adds one term after another. Chosen: healthy
# sums in six orders stay within it.
ROOM_OF_ORDER = 2.0


def stage_of_correct_output(comparison: Comparison) -> Stage:
    """The first stage of an output whose elements are all the reference correctly rounded."""
    expected = comparison.expected
    noise = Noise(np.zeros(expected.shape), 0.0, 0.0, int(np.count_nonzero(expected)), 0)
    return Stage(noise, limits_of(comparison), STAGES[0], "float64", None, expected)


def beside_poles(comparison: Comparison, spread: Spread | None) -> Spread | None:
    """The spread, with what else a device may have where the reference has an infinity or NaN: near a pole a few
    roundoffs more make a much smaller number, and rounding inside may make NaN of an infinity."""
    evidence, expected = comparison.evidence, comparison.expected
    if spread is not None and spread.poles is not None:
        nudged = run_spread(comparison, evidence.perturbed_more(STAGES[-1]))
        spread = spread if nudged is None else replace(spread, poles=spread.poles.joined(nudged.poles))
    if spread is not None and (np.isinf(expected) & np.isnan(widen(comparison.actual))).any():
        # Chance may keep what rounding to the nearest number takes for zero: both count.
        runs = [*evidence.rounded_by_chance(STAGES[-1]), evidence.added("pairs")]
        rounded = [np.isnan(run) & ~np.isnan(expected) for run in runs if run is not None]
        lost = np.logical_or.reduce([spread.lost, *rounded])
        spread = replace(spread, lost=lost, disagree=spread.disagree | lost)
    return spread


def with_runs(comparison: Comparison, spread: Spread | None, more: list[AnyArray]) -> Spread | None:
    """The spread of some runs and of these."""
    added = run_spread(comparison, more)
    return spread if added is None else added.joined(spread)


def beside_all(comparison: Comparison, spread: Spread | None, k: int) -> Stage:
    """Against the spread of k runs of each kind that does not round to 16 bit."""
    spread = pooled_spread(comparison, spread, by_results=not shares_rms(comparison))
    return _for_correlated(comparison, measured_stage(comparison, spread, limits_of(comparison), k, STEPS_SOURCE))


def of_equal_terms(comparison: Comparison, widest: Stage) -> Stage:
    """The same with the limits of sums of equal terms, but no wider than what float32 loses in a sum of these terms."""
    usual, limits = limits_of(comparison), limits_of(comparison, equal_terms=True)
    run = comparison.evidence.added("sequence")
    if run is not None:
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            lost = np.abs(run - comparison.expected) / scale_of(comparison, widest.spread)
        lost = ROOM_OF_ORDER * lost[np.isfinite(lost)]
        largest, rms = float(lost.max(initial=0.0)), allowed_scale.root_mean_square(lost)
        limits = Limits(min(limits.largest, max(usual.largest, largest)), min(limits.rms, max(usual.rms, rms)))
    return limited(comparison, replace(widest, source=EQUAL_TERMS), limits)


def _for_correlated(comparison: Comparison, stage: Stage) -> Stage:
    """The stage with an RMS limit for as many elements as err by themselves: a running sum hands its errors on. Runs
    under a device mode are of several kinds, and do not tell."""
    noise, limits, evidence = stage.noise, stage.limits, comparison.evidence
    if comparison.elementwise or comparison.allowance.emulated:
        return stage
    if noise.largest > limits.largest or noise.rms <= limits.rms:
        return stage
    kinds = evidence.perturbed(STAGES[-1]), evidence.float32_steps(STAGES[-1])
    effect = max(design_effect(runs, comparison.expected) for runs in kinds)
    return replace(stage, limits=noise_ratio.for_correlated(limits, noise.count, noise.count / effect))


def by_steps(comparison: Comparison, k: int) -> Stage:
    """The last stage of rounding to float32, from k runs of each kind, whatever the stages before it say."""
    evidence = comparison.evidence
    runs = evidence.perturbed(k)
    if not comparison.case.on_cpu:
        runs = runs + not_vanished(comparison, runs, evidence.float32(k))
    return beside_all(comparison, run_spread(comparison, runs + evidence.float32_steps(k)), k)


def not_vanished(comparison: Comparison, exact: list[AnyArray], runs: list[AnyArray]) -> list[AnyArray]:
    """float32 runs without zeros that overflow, or underflow, on the way gave: their distance from the reference is all
    of it, and is no scale. Where numbers cancel, perturbed runs in float64 move as far. Nor is it one where float64
    gives NaN in all runs: a kernel that leaves out zero times NaN has a number there. Nor where the kernel adds its
    terms one after another, as others need not."""
    spread = run_spread(comparison, exact)
    if spread is None:
        return runs
    lost = np.abs(comparison.expected) > noise_ratio.LARGEST_LIMIT * spread.size
    kept = np.isnan(comparison.expected) & ~spread.disagree
    kept |= added_in_order.drifted(comparison, runs, scale_of(comparison, spread))
    return [np.where(((run == 0) & lost) | kept, comparison.expected, run) for run in runs]


def between_steps(comparison: Comparison, runs: list[AnyArray]) -> Stage:
    """Against the rounding that 16-bit tensors undergo between kernels, and inside those that are known to round.

    Such rounding is sampled as it happens, not estimated, so the limits are close; and where each step is known the
    output is measured against the nearest sample, not against the reference.
    """
    sampled = comparison.evidence.narrow_steps(STAGES[-1])
    if "attention" in comparison.classes:
        # All of a row depends on few roundings there, and one that falls to the other side moves all of it. So what the
        # steps round on other inputs counts as well, without the inputs' own shift, which would hide whatever is wrong
        # where scores are large.
        evidence, expected = comparison.evidence, comparison.expected
        pairs = zip(evidence.narrow_steps_perturbed(STAGES[-1]), evidence.perturbed_narrow(STAGES[-1]), strict=False)
        with np.errstate(invalid="ignore"):
            runs = runs + [expected + np.where(step == exact, 0.0, step - exact) for step, exact in pairs]
    spread = pooled_spread(comparison, run_spread(comparison, runs + sampled), by_results=not shares_rms(comparison))
    # Sampled rounding has a direction: against R a healthy kernel would be off by all of it.
    center = nearest_sample(comparison, [comparison.expected, *sampled]) if sampled else comparison.expected
    measured = noise_of(replace(comparison, expected=center), spread)
    by_chance = STEPS.rms * noise_ratio.by_chance(measured.count)
    # The largest ratio goes with the RMS ratio of all elements but the worst.
    squares = max(measured.rms**2 * measured.count - measured.largest**2, 0.0)
    others = math.sqrt(squares / max(measured.count - 1, 1))
    close = Limits(min(STEPS.largest, max(STEPS_LEAST, STEPS_SHARE * others)), max(STEPS_OF_MANY, by_chance))
    return Stage(measured, close, STAGES[-1], BETWEEN_STEPS, spread, center)


def inside_kernel(comparison: Comparison, runs: list[AnyArray], limits: Limits) -> Stage:
    """Against R, beside what a roundoff of the 16-bit dtype does to inputs, between kernels, and in each step of the
    decompositions: a kernel that rounds inside, nobody knows where."""
    evidence = comparison.evidence
    sampled = evidence.narrow_steps(STAGES[-1]) + evidence.narrow_steps_inside(STAGES[-1])
    moved = runs + sampled + evidence.perturbed_narrow(STAGES[-1])
    spread = pooled_spread(comparison, run_spread(comparison, moved))
    growth = limits.rms / noise_ratio.usual_limits(comparison.elementwise).rms
    close = Limits(min(limits.largest, INSIDE_LIMITS.largest), INSIDE_LIMITS.rms * growth)
    return Stage(noise_of(comparison, spread), close, STAGES[-1], BETWEEN_STEPS, spread, comparison.expected)


def rounds_in_known_steps(comparison: Comparison) -> bool:
    """all steps inside its kernel are known"""
    return not rounds_inside(comparison)


def nearest_sample(comparison: Comparison, sampled: list[AnyArray]) -> AnyArray:
    """NaN stays right where the reference is NaN, though steps may lead to a number. In place of an infinity NaN is
    what exact inputs lead to: the first two of sampled."""
    lost = np.isnan(widen(comparison.actual))
    if lost.any():
        pole, [right, exact, *moved] = np.isinf(comparison.expected), sampled
        sampled = [right, exact, *(np.where(pole & np.isnan(run), right, run) for run in moved)]
    lost &= np.isnan(comparison.expected)
    return np.asarray(np.where(lost, comparison.expected, allowed_scale.nearest_run(comparison.actual, sampled)))


def rounds_inside(comparison: Comparison) -> bool:
    """its kernel rounds inside in unknown steps"""
    if comparison.case.computes_narrow:
        return True
    if "terms_of_transposed_kernel" in comparison.classes:
        # A transposed convolution that pads its output by a stride or more goes to a kernel whose columns are rounded.
        stride, padding = (np.atleast_1d(comparison.call.argument(name)) for name in ("stride", "output_padding"))
        if np.any(padding >= stride):
            return True
    kind = f"narrow_{comparison.direction}"
    # Where no library computes them, other 16-bit convolutions are the framework's own, as float16's always are.
    dtype = "float16" if comparison.case.plain_convolutions else comparison.precision.name
    return kind in comparison.classes or f"{kind}@{dtype}" in comparison.classes


def measured_stage(comparison: Comparison, spread: Spread | None, limits: Limits, k: int, source: str) -> Stage:
    expected = comparison.expected
    if "factory" in comparison.classes:
        # It has no inputs to perturb: its numbers follow from two ends, with an error of theirs everywhere.
        spread = Spread.of(np.full(expected.shape, 0.0 if _counts(comparison) else _size_of_roundoff(comparison)))
    elif _has_whole_inputs(comparison):
        # Whole numbers do not move, and a sum of them, as an FFT's, may cancel. What its steps round still counts.
        spread = Spread.of(np.full(expected.shape, _size_of_roundoff(comparison))).joined(spread)
    return limited(comparison, Stage(noise_of(comparison, spread), limits, k, source, spread, expected), limits)


def _size_of_roundoff(comparison: Comparison) -> float:
    values = np.abs(comparison.expected)
    return comparison.roundoff * allowed_scale.root_mean_square(values[np.isfinite(values)])


def _counts(comparison: Comparison) -> bool:
    """Are they whole numbers one after another? All sums of such are exact."""
    if "counts_up" not in comparison.classes:
        return False
    values = comparison.expected
    return bool((values == np.rint(values)).all() and (np.abs(values) * comparison.roundoff <= 1.0).all())


def _has_whole_inputs(comparison: Comparison) -> bool:
    """Do elements come from several inputs, all of which are whole numbers?"""
    if comparison.elementwise or comparison.direction == "backward":
        return False
    kinds = {array.dtype.kind for array in comparison.call.all_arrays}
    return bool(kinds) and kinds <= set("iu")


def limited(comparison: Comparison, stage: Stage, limits: Limits) -> Stage:
    """The stage with these limits."""
    noise = stage.noise
    if comparison.elementwise and noise.largest <= limits.largest and noise.rms > limits.rms:
        limits = noise_ratio.for_copies(limits, comparison.expected)
    return replace(stage, limits=limits)


def run_spread(comparison: Comparison, runs: list[AnyArray]) -> Spread | None:
    return in_domain(comparison, allowed_scale.spread_of(runs, comparison.expected, comparison.actual.dtype))


def in_domain(comparison: Comparison, spread: Spread | None) -> Spread | None:
    """The spread without NaN of runs in place of infinities: moved inputs may leave the domain beside a pole, and those
    of the device have not moved."""
    if spread is None or not spread.lost.any():
        return spread
    return replace(spread, lost=spread.lost & ~np.isinf(comparison.expected))


def pooled_spread(comparison: Comparison, spread: Spread | None, *, by_results: bool = False) -> Spread | None:
    """Where the API works element by element: the largest spread among elements of like arguments, or, where several
    arguments decide, of like results. A gradient counts in units of the incoming one, as each element has its own.

    by_results: of like results in any case. Few roundings may decide all of a row, and be none by chance."""
    if spread is None or not (comparison.elementwise or by_results):
        return spread
    expected, values = comparison.expected, comparison.call.argument("input")
    units = list(comparison.case.incoming.values()) if comparison.direction == "backward" else [np.ones(expected.shape)]
    alone = comparison.elementwise and len(comparison.call.all_arrays) == len(units) == 1
    fits = alone and all(np.shape(each) == expected.shape for each in (values, *units))
    order, unit = (widen(values), np.abs(widen(units[0]))) if fits else (expected, np.ones(expected.shape))
    return allowed_scale.pooled(spread, np.abs(order) if order.dtype.kind == "c" else order, unit)


def limits_of(comparison: Comparison, *, equal_terms: bool = False) -> Limits:
    # The reference of float64 is computed in float64 as well, and errs as much as the device.
    wide = 2.0 if comparison.precision in WIDE_DTYPES else 1.0
    return noise_ratio.limits_for(
        elementwise=comparison.elementwise,
        fan_in=summed_terms(comparison).count,
        equal_terms=equal_terms,
        count=int(np.count_nonzero(comparison.expected)),
        winograd=may_use_winograd(comparison),
        factor=comparison.allowance.factor * wide,
    )


def noise_of(comparison: Comparison, spread: Spread | None, share: float | None = None) -> Noise:
    """share: what every element is granted of the scatter of all; None: what the rule grants."""
    return noise_ratio.measure_noise(
        comparison.actual,
        comparison.expected,
        spread,
        dtype=comparison.precision,
        roundoff=comparison.roundoff,
        share=share_of(comparison, spread) if share is None else share,
        still=still_of(comparison, spread) if share is None else math.inf,
        weights=comparison.weights,
    )


def noise_beside(comparison: Comparison, stage: Stage, values: AnyArray) -> Noise:
    """The noise of other values in the place of the output."""
    return noise_of(replace(comparison, actual=values), stage.spread)


def scale_of(comparison: Comparison, spread: Spread | None) -> AnyArray:
    """A of each element."""
    with np.errstate(invalid="ignore", over="ignore"):
        return allowed_scale.scale(
            comparison.expected,
            spread,
            dtype=comparison.precision,
            roundoff=comparison.roundoff,
            share=share_of(comparison, spread),
            still=still_of(comparison, spread),
            weights=comparison.weights,
        )


def still_of(comparison: Comparison, spread: Spread | None) -> float:
    """What is granted where nothing moves, inf: what all others are. Of a function that spreads its rounding over no
    other elements it may be the rounding of a sum of all."""
    if spread is None or comparison.elementwise or _spreads_rounding(comparison):
        return math.inf
    return FLOOR_OF_UNMOVED * comparison.roundoff


def _spreads_rounding(comparison: Comparison) -> bool:
    """A convolution by tiles, or by Fourier transforms, spreads its rounding over all elements."""
    return not comparison.classes.isdisjoint(("terms_of_kernel", "terms_of_transposed_kernel"))


def share_of(comparison: Comparison, spread: Spread | None) -> float:
    """What every element is granted of the scatter of all."""
    if spread is None or comparison.elementwise:
        return 0.0
    if shares_rms(comparison):
        return allowed_scale.RMS_SHARE * allowed_scale.root_mean_square(spread.size, comparison.weights)
    # A kernel may flush subnormal numbers of float32 inside, as exponentials before they are divided by their sum.
    sizes = np.abs(comparison.expected)
    finite = np.where(np.isfinite(sizes), sizes, 0.0)
    rms = allowed_scale.root_mean_square(finite, comparison.weights)
    lost = max(min(SMALLEST_FLOAT32 / 2, comparison.roundoff * rms), CLIPPED * float(finite.max(initial=0.0)))
    return max(allowed_scale.median_share(spread, comparison.weights), lost)


def shares_rms(comparison: Comparison) -> bool:
    """Is every element granted a share of RMS(S)? A convolution spreads its rounding; what may choose may choose
    elsewhere; a gradient may be a difference of numbers that are far larger (p - 1 where p is near 1), which no run
    shows; and few runs of a device mode may round an element alike by chance."""
    if comparison.elementwise:
        return False
    others = may_choose(comparison) or comparison.direction == "backward"
    return others or _spreads_rounding(comparison) or comparison.allowance.emulated
