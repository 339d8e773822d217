"""An output against one allowed scale after the other: perturbed runs, then the kernel's own rounding."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_probe.model.comparison import Comparison
from pytest_probe.numerics import noise_ratio
from pytest_probe.numerics.dtypes import WIDE_DTYPES, AnyArray, float_format, widen
from pytest_probe.numerics.noise_ratio import Limits, Noise, Spread
from pytest_probe.numerics.statistics import design_effect
from pytest_probe.standards.noise import added_in_order
from pytest_probe.standards.noise.summed_terms import may_use_winograd, repeats, summed_terms

# Digits of float32.
SINGLE = 24
# Perturbed runs of each stage, so that most outputs pass without one.
STAGES = (0, 1, 2, 4)
# What results say in scale_from; decide() and the biases ask for them.
AMONG_THEMSELVES = "float32 among themselves"
EQUAL_TERMS = "steps, equal terms"
BETWEEN_STEPS = "16-bit steps"
# How the reason begins where a formula of the framework's own, rounded at each step, gives the output.
EACH_STEP = "rounds each step in"
# Roundoffs of the reference's RMS, in the scale of elements that no run moves from zero. An FFT errs by 2 or 3 of them
# there, by 64 times the scale at most; a mask of -10 leaks 750.
STILL = 0.25
# A choice among many equal elements may fall on one that no run has chosen, and among zeros no run chooses another:
# runs that tell, and the share of elements.
CHOICES, FEW_CHOICES = 64, 0.05
# What float32 kernels do among themselves shows their own rounding, and nothing else that may explain an error: a
# kernel that rounds inside to 11 bits errs by about 24 times what its runs differ by.
AMONG = Limits(16.0, 4.0)
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


class Stage(Struct, frozen=True):
    """Noise ratios against one spread, their limits, the K that they took, and from what runs.

    center is what the output was measured against: the reference, or a run that rounds as the device does. unstable
    counts elements that jump; where there are any the others were measured without them, and are above the limits.
    """

    noise: Noise
    limits: Limits
    k: int
    source: str
    spread: Spread | None
    center: AnyArray
    unstable: int = 0

    @property
    def within_limits(self) -> bool:
        return self.noise.within(self.limits)

    @property
    def reason(self) -> str:
        parts = []
        if not self.noise.largest <= self.limits.largest:
            parts.append(f"noise ratio {self.noise.largest:,.4g} (limit {self.limits.largest:,.4g})")
        if not self.noise.rms <= self.limits.rms:
            parts.append(f"RMS noise ratio {self.noise.rms:,.4g} (limit {self.limits.rms:,.4g})")
        return ", ".join(parts)


class Measured(Struct, frozen=True):
    """What was measured of an output, whatever its limits are: the stages of its float64 runs, and by their K the noise
    without c RMS(S), of which only the largest and the RMS are kept."""

    stages: list[Stage] = field(default_factory=list)
    without_floor: dict[int, Noise] = field(default_factory=dict)


def of_right(comparison: Comparison) -> Stage:
    """The first stage of an output whose elements are all the reference correctly rounded."""
    expected = comparison.expected
    noise = Noise(np.zeros(expected.shape), 0.0, 0.0, int(np.count_nonzero(expected)), 0)
    return Stage(noise, limits_of(comparison), STAGES[0], "float64", None, expected)


def in_turn(comparison: Comparison, known: Measured) -> Iterator[Stage]:
    """Stages as A grows: float64 runs at growing K, then the kernel's own rounding. known has those that were measured
    before, with other limits, and gets those that are measured here."""
    evidence = comparison.evidence
    limits = limits_of(comparison)
    runs: list[AnyArray] = []
    spread: Spread | None = None
    for index, k in enumerate(STAGES):
        before, runs = len(runs), evidence.perturbed(k)
        # The reference cannot be perturbed more often: another stage would say the same.
        if k and len(runs) == before:
            break
        if index < len(known.stages):
            stage = _limited(comparison, known.stages[index], limits)
            spread = stage.spread
        else:
            spread = _with_runs(comparison, spread, runs[before:])
            stage = _stage(comparison, spread, limits, len(runs), "float64")
            # The spread of a factory is its own.
            if stage.spread is spread:
                known.stages.append(stage)
        yield stage
    if chose_otherwise(comparison, runs):
        untied = run_spread(comparison, evidence.untied(CHOICES))
        if untied is not None and spread is not None:
            wider = replace(spread, size=np.maximum(spread.size, untied.size))
            yield _stage(comparison, wider, limits, CHOICES, "float64")
    spread = _beside_poles(comparison, spread)
    # Another device's fault is not in the CPU's kernels: their float32 runs may count against R.
    if not comparison.case.on_cpu:
        more = _not_vanished(comparison, runs, evidence.float32(STAGES[-1]))
        runs, spread = runs + more, _with_runs(comparison, spread, more)
        yield _stage(comparison, spread, limits, STAGES[-1], "float32")
    more = evidence.float32_steps(STAGES[-1])
    runs, spread = runs + more, _with_runs(comparison, spread, more)
    widest = _beside_all(comparison, spread, STAGES[-1])
    yield from widest
    if not comparison.case.on_cpu:
        return
    if may_round_between(comparison):
        yield between_steps(comparison, runs, limits)
    # Among themselves, not against R: a fault of the kernel is in all its runs, and must not widen its limits.
    among = noise_ratio.among(evidence.float32(STAGES[-1]), comparison.actual.dtype)
    own = pooled_spread(comparison, _in_domain(comparison, among))
    if own is not None:
        wider = own.joined(widest[-1].spread)
        tight = Limits(min(limits.largest, AMONG.largest), min(limits.rms, AMONG.rms * (limits.rms / noise_ratio.RMS)))
        yield _stage(comparison, wider, tight, STAGES[-1], AMONG_THEMSELVES)


def may_round_between(comparison: Comparison) -> bool:
    """May 16-bit tensors be what passes between the kernels of this output? A float32 result of 16-bit tensors alone
    has the digits of float32, or has lost them."""
    wide = comparison.case.narrow_alone and float_format(comparison.precision).precision >= SINGLE
    return bool(comparison.case.narrow) and not wide


def _beside_poles(comparison: Comparison, spread: Spread | None) -> Spread | None:
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


def _with_runs(comparison: Comparison, spread: Spread | None, more: list[AnyArray]) -> Spread | None:
    """The spread of some runs and of these."""
    added = run_spread(comparison, more)
    return spread if added is None else added.joined(spread)


def _beside_all(comparison: Comparison, spread: Spread | None, k: int) -> list[Stage]:
    """Against the spread of k runs of each kind that does not round to 16 bit; where terms are equal, with the limits
    of those as well."""
    spread = pooled_spread(comparison, spread)
    found = [_for_correlated(comparison, _stage(comparison, spread, limits_of(comparison), k, "steps"))]
    if repeats(comparison):
        limits = limits_of(comparison, equal_terms=True)
        found.append(_limited(comparison, replace(found[0], source=EQUAL_TERMS), limits))
    return found


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


def by_steps(comparison: Comparison, k: int) -> list[Stage]:
    """The last stages of rounding to float32, from k runs of each kind, whatever the stages before them say."""
    evidence = comparison.evidence
    runs = evidence.perturbed(k)
    if not comparison.case.on_cpu:
        runs = runs + _not_vanished(comparison, runs, evidence.float32(k))
    return _beside_all(comparison, run_spread(comparison, runs + evidence.float32_steps(k)), k)


def chose_otherwise(comparison: Comparison, runs: list[AnyArray]) -> bool:
    """Has the device numbers in few elements where the reference and every run have zero?"""
    moved = np.logical_or.reduce([comparison.expected != 0, *(run != 0 for run in runs)])
    found = np.count_nonzero(~moved & (widen(comparison.actual) != 0))
    return bool(0 < found <= FEW_CHOICES * comparison.actual.size)


def _not_vanished(comparison: Comparison, exact: list[AnyArray], runs: list[AnyArray]) -> list[AnyArray]:
    """float32 runs without zeros that overflow, or underflow, on the way gave: their distance from the reference is all
    of it, and is no scale. Where numbers cancel, perturbed runs in float64 move as far. Nor is it one where float64
    gives NaN in all runs: a kernel that leaves out zero times NaN has a number there. Nor where the kernel adds its
    terms one after another, as others need not."""
    spread = run_spread(comparison, exact)
    if spread is None:
        return runs
    lost = np.abs(comparison.expected) > noise_ratio.LARGEST * spread.size
    kept = np.isnan(comparison.expected) & ~spread.disagree
    kept |= added_in_order.drifted(comparison, runs, scale_of(comparison, spread))
    return [np.where(((run == 0) & lost) | kept, comparison.expected, run) for run in runs]


def between_steps(comparison: Comparison, runs: list[AnyArray], limits: Limits) -> Stage:
    """Against the rounding that 16-bit tensors undergo between kernels, and inside those that are known to round.

    Such rounding is sampled as it happens, not estimated, so the limits are close; and where each step is known the
    output is measured against the nearest sample, not against the reference.
    """
    if rounds_inside(comparison):
        return inside_kernel(comparison, runs, limits)
    sampled = comparison.evidence.narrow_steps(STAGES[-1])
    if "attention" in comparison.classes:
        # All of a row hangs on few roundings there, and one that falls to the other side moves all of it. So what the
        # steps round on other inputs counts as well, without the inputs' own shift, which would hide whatever is wrong
        # where scores are large.
        evidence, expected = comparison.evidence, comparison.expected
        pairs = zip(evidence.narrow_steps_perturbed(STAGES[-1]), evidence.perturbed_narrow(STAGES[-1]), strict=False)
        with np.errstate(invalid="ignore"):
            runs = runs + [expected + np.where(step == exact, 0.0, step - exact) for step, exact in pairs]
    spread = pooled_spread(comparison, run_spread(comparison, runs + sampled))
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
    growth = limits.rms / (noise_ratio.ELEMENTWISE_RMS if comparison.elementwise else noise_ratio.RMS)
    close = Limits(min(limits.largest, INSIDE_LIMITS.largest), INSIDE_LIMITS.rms * growth)
    return Stage(noise_of(comparison, spread), close, STAGES[-1], BETWEEN_STEPS, spread, comparison.expected)


def nearest_sample(comparison: Comparison, sampled: list[AnyArray]) -> AnyArray:
    """NaN stays right where the reference is NaN, though steps may lead to a number. In place of an infinity NaN is
    what exact inputs lead to: the first two of sampled."""
    lost = np.isnan(widen(comparison.actual))
    if lost.any():
        pole, [right, exact, *moved] = np.isinf(comparison.expected), sampled
        sampled = [right, exact, *(np.where(pole & np.isnan(run), right, run) for run in moved)]
    lost &= np.isnan(comparison.expected)
    return np.asarray(np.where(lost, comparison.expected, noise_ratio.nearest_run(comparison.actual, sampled)))


def rounds_inside(comparison: Comparison) -> bool:
    """Does the CPU's kernel round to 16 bit inside, in steps that are not written down?"""
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


def _stage(comparison: Comparison, spread: Spread | None, limits: Limits, k: int, source: str) -> Stage:
    expected = comparison.expected
    if "factory" in comparison.classes:
        # A factory has no inputs to perturb: its numbers follow from two ends, with an error of theirs everywhere.
        size = comparison.roundoff * noise_ratio.root_mean_square(np.abs(expected[np.isfinite(expected)]))
        spread = Spread.of(np.full(expected.shape, size))
    return _limited(comparison, Stage(noise_of(comparison, spread), limits, k, source, spread, expected), limits)


def _limited(comparison: Comparison, stage: Stage, limits: Limits) -> Stage:
    """The stage with these limits."""
    noise = stage.noise
    if comparison.elementwise and noise.largest <= limits.largest and noise.rms > limits.rms:
        limits = noise_ratio.for_copies(limits, comparison.expected)
    return replace(stage, limits=limits)


def run_spread(comparison: Comparison, runs: list[AnyArray]) -> Spread | None:
    return _in_domain(comparison, noise_ratio.spread_of(runs, comparison.expected, comparison.actual.dtype))


def _in_domain(comparison: Comparison, spread: Spread | None) -> Spread | None:
    """The spread without NaN of runs in place of infinities: moved inputs may leave the domain beside a pole, and those
    of the device have not moved."""
    if spread is None or not spread.lost.any():
        return spread
    return replace(spread, lost=spread.lost & ~np.isinf(comparison.expected))


def pooled_spread(comparison: Comparison, spread: Spread | None) -> Spread | None:
    """Where the API works element by element: the largest spread among elements of like arguments."""
    if spread is None or not comparison.elementwise:
        return spread
    values = comparison.call.argument("input")
    fits = isinstance(values, np.ndarray) and values.shape == comparison.expected.shape
    order = widen(values) if fits else comparison.expected
    return noise_ratio.pooled(spread, np.abs(order) if order.dtype.kind == "c" else order)


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


def noise_of(comparison: Comparison, spread: Spread | None, floor: float | None = None) -> Noise:
    return noise_ratio.measure_noise(
        comparison.actual,
        comparison.expected,
        spread,
        dtype=comparison.precision,
        roundoff=comparison.roundoff,
        floor=floor_of(comparison) if floor is None else floor,
        still=still_of(comparison),
        weights=comparison.weights,
    )


def noise_beside(comparison: Comparison, stage: Stage, values: AnyArray) -> Noise:
    """The noise of other values in the place of the output."""
    return noise_of(replace(comparison, actual=values), stage.spread)


def scale_of(comparison: Comparison, spread: Spread | None) -> AnyArray:
    """A of each element."""
    with np.errstate(invalid="ignore", over="ignore"):
        return noise_ratio.scale(
            comparison.expected,
            spread,
            dtype=comparison.precision,
            roundoff=comparison.roundoff,
            floor=floor_of(comparison),
            still=still_of(comparison),
            weights=comparison.weights,
        )


def still_of(comparison: Comparison) -> float:
    """What is granted where nothing moves. A convolution by tiles, or by Fourier transforms, spreads its rounding over
    all elements; of any other function it may be the rounding of a sum of all."""
    spreads = comparison.classes & {"terms_of_kernel", "terms_of_transposed_kernel"}
    return math.inf if spreads else STILL * comparison.roundoff


def floor_of(comparison: Comparison) -> float:
    """c, the share of RMS(S) that every element is granted."""
    return 0.0 if comparison.elementwise else noise_ratio.FLOOR
