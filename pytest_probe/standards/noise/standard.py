"""The noise standard: is the error what the precision explains? The rule is in docs/standards.md.

Right outputs need no evidence: the correctly rounded reference leaves no error after half an ulp, so no run can change
its verdict. tests/standards/test_right_results.py holds the judges to that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec.structs import replace

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import UNDECIDED, Basis, Metric, Outcome, OutputVerdict
from pytest_probe.numerics import metrics, noise_ratio
from pytest_probe.numerics.arrays import same_bytes
from pytest_probe.numerics.dtypes import AnyArray, dtype_name, float_format, round_to, widen
from pytest_probe.numerics.error_plots import histogram
from pytest_probe.numerics.noise_ratio import Bias, Noise, Spread
from pytest_probe.standards.exact import Exact, elements
from pytest_probe.standards.noise import edges, far_off, other_terms, stages, steps
from pytest_probe.standards.noise.added_in_order import added_in_order
from pytest_probe.standards.noise.detects import detects_of, with_grant
from pytest_probe.standards.noise.edges import is_smooth, unstable
from pytest_probe.standards.noise.stages import AMONG_THEMSELVES, BETWEEN_STEPS, EQUAL_TERMS, STAGES, Measured, Stage
from pytest_probe.standards.noise.summed_terms import summed_terms

# Noise scales of a mean shift beside known steps: less than their RMS limit.
STEPS_BIAS = 0.5
# What a kernel of a user may round to 16 bit, the less first; and that with what recurrences hand on.
ROUNDED_INSIDE = {
    False: "rounds the operands of its products to 16 bit",
    True: "rounds the operands of its products, and what its recurrences hand on, to 16 bit",
}
OWN_KERNEL = "own 16-bit kernel here, which rounds inside"
IN_SINGLE = (
    f"{UNDECIDED}the roundoff of float32 explains the error and that of float64 does not; an argument is narrower than "
    "float64"
)


class NoiseStandard:
    """Floats by the noise rule; integers, booleans and empty outputs exact."""

    name = "noise"

    def judge(self, comparison: Comparison) -> OutputVerdict:
        if comparison.actual.dtype.kind in "iub" or not comparison.actual.size:
            return Exact().judge(comparison)
        measured = metrics.describe(comparison.actual, comparison.expected)
        if _is_right(comparison, measured):
            return _verdict(comparison, stages.of_right(comparison), "pass", measured=measured)
        return with_grant(comparison, self._judged(comparison, measured))

    def _judged(self, comparison: Comparison, measured: Mapping[str, Metric]) -> OutputVerdict:
        known = Measured()
        stage, outcome, reason = _decided(comparison, known)
        if outcome != "error" and summed_terms(comparison).assumed:
            # May the output pass only since it is assumed to be a sum of many terms? Attention always is one of some.
            few = of_few_terms(comparison)
            if not stages.noise_of(few, stage.spread).within(stages.limits_of(few)):
                comparison = replace(comparison, terms=comparison.evidence.terms())
                stage, outcome, reason = _decided(comparison, known)
        if outcome == "error":
            cut = other_terms.with_cut_sums(comparison, stage.spread)
            other = None if cut is None else _decided(cut, Measured())
            if cut is not None and other is not None and other[1] == "pass":
                return _verdict(cut, other[0], "pass", other_terms.CUT_SUMS_WORDS)
            narrower = _in_single(comparison)
            if narrower is not None:
                return narrower
            added = None
            if not (stage.within_limits or stage.unstable):
                allowed = stages.scale_of(comparison, stage.spread)
                added = added_in_order(comparison, stage.noise, stage.limits, allowed)
            if added is not None:
                return _verdict(comparison, stage, "warning", added.words, measured)
            own = _of_own_kernel(comparison)
            if own is not None:
                return _verdict(comparison, own[0], "warning", f"{own[1]}: {reason}", measured)
            inside = _but_for_kernels_inside(comparison)
            if inside is not None:
                return _verdict(comparison, stage, "warning", f"{inside}: {reason}", measured)
            for takes in (other_terms.left_out, other_terms.multiplied):
                terms = takes(comparison)
                if terms is not None:
                    beside_others, found, _ = _decided(terms.comparison, Measured())
                    if found != "error":
                        return _verdict(comparison, beside_others, "warning", terms.words, measured)
        return _verdict(comparison, stage, outcome, reason, measured)


def _is_right(comparison: Comparison, measured: Mapping[str, Metric]) -> bool:
    """Is each element the reference correctly rounded? Nothing then is left of any error after half an ulp, so that no
    run can change the verdict. A factory is measured beside a spread of its own."""
    own = comparison.precision == comparison.actual.dtype
    return own and measured["mismatch"] == 0.0 and "factory" not in comparison.classes


def _in_single(comparison: Comparison) -> OutputVerdict | None:
    """Undecided where float32's roundoff explains a CPU's output of float64 that has a narrower argument: steps of a
    function may compute in that dtype, exp(x) in x exp(y) - x y. Beside another device the CPU's own result tells."""
    if comparison.single is None or not comparison.case.on_cpu:
        return None
    single = replace(comparison, roundoff=float_format("float32").roundoff, evidence=comparison.single, single=None)
    stage, outcome, _ = _decided(single, Measured())
    return _verdict(single, stage, "warning", IN_SINGLE) if outcome == "pass" else None


def _of_own_kernel(comparison: Comparison) -> tuple[Stage, str] | None:
    """What explains, in 16 bit, what the framework's own function gives on its CPU, bit for bit, or by its kernels on
    another device that are known: rounding in steps that are not written down; and the words for it. A function or a
    device of somebody else gets nothing from this."""
    if not stages.may_round_between(comparison) or stages.rounds_inside(comparison):
        return None
    whose, actual = "", comparison.actual
    if not comparison.case.on_cpu:
        known = f"narrow_{comparison.direction}_{comparison.case.own_kernels}"
        whose = "the framework" if known in comparison.classes else ""
    elif (own := comparison.evidence.own_result()) is not None and same_bytes(own.values, actual):
        whose = own.framework
    if not whose:
        return None
    # An overflow inside is no rounding.
    rounded = round_to(comparison.expected, actual.dtype)
    if (np.isfinite(widen(rounded)) & ~np.isfinite(widen(actual))).any():
        return None
    runs = comparison.evidence.perturbed(STAGES[-1]) + comparison.evidence.float32_steps(STAGES[-1])
    stage = stages.inside_kernel(comparison, runs, stages.limits_of(comparison))
    explained = stage.within_limits and _bias(comparison, stage) is None
    if not explained and "narrow_unbounded" not in comparison.classes:
        return None
    return stage, f"{whose}'s {OWN_KERNEL}"


def _but_for_kernels_inside(comparison: Comparison) -> str | None:
    """The words for an error of a user's function, in 16 bit, that is none where each kernel of the framework's own CPU
    inside it rounds once; None where it stays one, and where the function gives something else each time."""
    inside = comparison.evidence.kernels_inside() if stages.may_round_between(comparison) else None
    if inside is None or not same_bytes(inside.values, comparison.actual):
        return None
    _, outcome, _ = _decided(replace(comparison, actual=inside.once), Measured())
    return None if outcome == "error" else f"{inside.framework}'s {OWN_KERNEL}"


def _decided(comparison: Comparison, known: Measured) -> tuple[Stage, Outcome, str]:
    far = far_off.by_one_run(comparison, known)
    if far is not None:
        return _explained_by_borders(comparison, far, far.reason)
    stage = decide(comparison, known)
    if stage.unstable:
        return stage, *_beside_unstable(comparison, stage)
    trouble = _bias_beside_steps(comparison, stage) if stage.within_limits else stage.reason
    if trouble is None:
        trouble = edges.crossed(comparison, stage) or edges.unbalanced(comparison, stage)
        if trouble:
            return stage, "error", trouble
        # Elements that nobody could judge are no pass.
        size = stage.noise.ratios.size
        judged = size - stage.noise.undecided
        if 2 * judged >= size:
            return stage, "pass", ""
        found = f"{judged:,} of {size:,} elements could be judged; perturbed runs overflow in the others"
        return stage, "warning", f"{UNDECIDED}{found}"
    # What rounding to 16 bit explains, of an output that is above the limits or biased.
    explained, outcome, reason = _explained_by_steps(comparison, stage, trouble)
    return (explained, outcome, reason) if outcome != "error" else _explained_by_borders(comparison, stage, reason)


def of_few_terms(comparison: Comparison) -> Comparison:
    """The comparison without the terms that it is assumed to be a sum of."""
    if not summed_terms(comparison).assumed:
        return comparison
    return replace(comparison, terms=noise_ratio.FAN_IN_START if "attention" in comparison.classes else 1)


def _explained_by_borders(comparison: Comparison, stage: Stage, trouble: str) -> tuple[Stage, Outcome, str]:
    """What rounding explains in the reference of a user, on any device: at the borders that are named, else of the
    operands of products."""
    why_not = steps.unlike_borders(comparison, stage) if comparison.case.narrow else None
    if why_not == "":
        return replace(stage, source=BETWEEN_STEPS), "pass", "rounds at its borders"
    if why_not is not None:
        return stage, "error", f"{trouble}; no rounding at its borders: {why_not}"
    # In float32 it would hide an accumulator of 16 bit. Gradients of 16-bit results come of numbers of 16 bit.
    narrow = float_format(comparison.precision).precision < stages.SINGLE
    of_narrow = comparison.direction == "backward" and _gives_narrow(comparison)
    if stages.may_round_between(comparison) and (narrow or of_narrow):
        for carried, words in ROUNDED_INSIDE.items():
            if steps.unlike_rounded_operands(comparison, stage, carried=carried) == "":
                return replace(stage, source=BETWEEN_STEPS), "pass", words
    return stage, "error", trouble


def _explained_by_steps(comparison: Comparison, stage: Stage, trouble: str) -> tuple[Stage, Outcome, str]:
    """What rounding at known places explains."""
    if comparison.case.on_cpu:
        stepped = None
        if stage.within_limits and comparison.case.narrow and stage.source != BETWEEN_STEPS:
            stepped = _unbiased(comparison)
        return (stage, "error", _named(comparison, trouble)) if stepped is None else (stepped, "pass", "")
    if not stage.within_limits:
        beside = steps.by_cpu_result(comparison, stage)
        if beside is not None:
            return stage, "pass", beside
    elif _biased_as_cpu(comparison, stage):
        return stage, "pass", "as-cpu: the CPU's own kernel has the same bias"
    # Kernels that give 16 bit inside a call of the framework's own whose results are float32: an autocast casts so.
    case = comparison.case
    kernels = comparison.evidence.narrow_kernels() if case.own_kernels and not _gives_narrow(comparison) else ()
    if kernels and steps.unlike_composed_steps(comparison, stage, ["cast"]) == "":
        names = " and ".join(dict.fromkeys(kernels))
        words = f"under autocast the framework's own call computes {names} in {case.narrow} inside: {trouble}"
        return replace(stage, source=BETWEEN_STEPS), "warning", words
    if stages.may_round_between(comparison):
        why_not = steps.unlike_composed_steps(comparison, stage)
        if why_not == "":
            return replace(stage, source=BETWEEN_STEPS), "pass", "rounds between its kernels"
        if comparison.case.own_kernels and steps.unlike_composed_steps(comparison, stage, ["stepwise"]) == "":
            return replace(stage, source=BETWEEN_STEPS), "pass", f"{stages.EACH_STEP} {comparison.case.narrow}"
        if why_not is not None:
            trouble = f"{trouble}; no rounding between kernels: {why_not}"
    return stage, "error", _named(comparison, trouble)


def _gives_narrow(comparison: Comparison) -> bool:
    """Is one of the call's own results of 16 bit?"""
    given = (dtype_name(value.dtype) for value in comparison.case.forward.values() if isinstance(value, np.ndarray))
    return comparison.case.narrow in given


def _named(comparison: Comparison, trouble: str) -> str:
    """The trouble, with its name where the output is cut and not rounded."""
    if not steps.truncates(comparison):
        return trouble
    return f"truncates to {comparison.precision.name} where it should round: {trouble}"


def decided(comparison: Comparison, verdict: OutputVerdict) -> Stage:
    """What `decide` gives, which a verdict on this very comparison has already."""
    if verdict.basis is None or verdict.basis.comparison is not comparison:
        return decide(comparison, Measured())
    found: Stage = verdict.basis.measured
    return found


def decide(comparison: Comparison, known: Measured) -> Stage:
    """The first stage within its limits, else the first that unstable elements brought there, else the last with the
    limits of the rule."""
    stepped = by_one_run_of_steps(comparison) if comparison.large else None
    if stepped is not None:
        return stepped
    last = far_off.by_all_runs(comparison, known)
    if last is not None:
        return last
    found: list[Stage] = []
    by_unstable: list[Stage] = []
    for stage in stages.in_turn(comparison, known):
        if stage.within_limits:
            others = _without_unstable(comparison, stage, known)
            if others is None:
                return stage
            by_unstable.append(others)
        found.append(stage)
    if by_unstable:
        return by_unstable[0]
    # Its limits are others than the rule's, which a report would show.
    return next(stage for stage in reversed(found) if stage.source not in (AMONG_THEMSELVES, EQUAL_TERMS))


def by_one_run_of_steps(comparison: Comparison) -> Stage | None:
    """The stage of 16-bit steps, where one run of these gives the CPU's output bit for bit: no further run can show it
    farther off. None else."""
    if not comparison.case.on_cpu or not stages.may_round_between(comparison) or stages.rounds_inside(comparison):
        return None
    runs = comparison.evidence.narrow_steps(1)
    if not runs or not np.array_equal(widen(round_to(runs[0], comparison.actual.dtype)), widen(comparison.actual)):
        return None
    expected = comparison.expected
    noise = Noise(np.zeros(expected.shape), 0.0, 0.0, int(np.count_nonzero(expected)), 0)
    return Stage(noise, stages.STEPS, 1, BETWEEN_STEPS, None, runs[0])


def _without_unstable(comparison: Comparison, stage: Stage, known: Measured) -> Stage | None:
    """The stage where unstable elements grant the others nothing; None where that leaves it within its limits."""
    spread, floor = stage.spread, stages.floor_of(comparison)
    if spread is None or not floor:
        return None
    moved = replace(comparison, expected=stage.center)
    # It passes without c RMS(S), so that no unstable element granted anything.
    if _without_floor(moved, stage, spread, known).within(stage.limits):
        return None
    # Without a choice no element moves farther in such runs than all do.
    if stage.source == "float64" and is_smooth(comparison):
        return None
    jumps = unstable(comparison, spread)
    if jumps is None or not jumps.any():
        return None
    stable = stages.noise_of(moved, replace(spread, size=np.where(jumps, 0.0, spread.size)))
    ratios = np.where(jumps, stage.noise.ratios, stable.ratios)
    found = noise_ratio.noise_of_ratios(ratios, comparison.expected, stage.noise.undecided, comparison.weights)
    count = int(np.count_nonzero(jumps))
    return None if found.within(stage.limits) else replace(stage, noise=found, unstable=count)


def _without_floor(moved: Comparison, stage: Stage, spread: Spread, known: Measured) -> Noise:
    """The noise of a stage without c RMS(S), as far as limits ask for it."""
    if stage.source != "float64":
        return stages.noise_of(moved, spread, floor=0.0)
    if stage.k not in known.without_floor:
        found = stages.noise_of(moved, spread, floor=0.0)
        known.without_floor[stage.k] = replace(found, ratios=np.empty(0))
    return known.without_floor[stage.k]


def _beside_unstable(comparison: Comparison, stage: Stage) -> tuple[Outcome, str]:
    """A device that chooses otherwise errs in fewer elements than are unstable, since not each jumps in a few runs; one
    that rounds between 16-bit kernels may err in all."""
    wrong = int(np.count_nonzero(stage.noise.ratios > stage.limits.largest))
    unstable = f"{stage.unstable:,} of {stage.noise.ratios.size:,} elements are unstable"
    found = f"{unstable}: they change abruptly when inputs change by a roundoff"
    if wrong > stage.unstable:
        elsewhere = stages.may_round_between(comparison) and not comparison.case.on_cpu
        if elsewhere and steps.unlike_composed_steps(comparison, stage) == "":
            return "pass", "rounds between its kernels"
        trouble = f"{found}; of all elements {wrong:,} are above the limit: {stage.reason}"
        return _explained_by_borders(comparison, stage, trouble)[1:]
    return "warning", f"{UNDECIDED}{found}; {stage.reason}"


def _unbiased(comparison: Comparison) -> Stage | None:
    """What explains a bias: a constant that was rounded to 16 bits between two steps moves all elements alike."""
    evidence = comparison.evidence
    if stages.rounds_inside(comparison) or not evidence.narrow_steps(STAGES[-1]):
        return None
    runs = evidence.perturbed(STAGES[-1]) + evidence.float32_steps(STAGES[-1])
    stepped = stages.between_steps(comparison, runs, stages.limits_of(comparison))
    return stepped if stepped.within_limits and _bias(comparison, stepped) is None else None


def _biased_as_cpu(comparison: Comparison, stage: Stage) -> bool:
    """Is the output biased beside the reference and not beside the CPU's own kernel, as where both round the same steps
    to 16 bit?"""
    result = comparison.evidence.cpu_result()
    if result is None or result.dtype != comparison.actual.dtype:
        return False
    return _bias(comparison, stage, result) is None


def _bias_beside_steps(comparison: Comparison, stage: Stage) -> str | None:
    """The words for a bias that float32's rounding does not explain, though no element made its steps be asked for: one
    element of 16 bit is granted more than the mean of many."""
    trouble = _bias(comparison, stage)
    if trouble is None or stage.source in (BETWEEN_STEPS, AMONG_THEMSELVES):
        return trouble
    widest = stages.by_steps(comparison, STAGES[-1])[-1]
    return _bias(comparison, widest) if widest.within_limits else trouble


def _bias(comparison: Comparison, stage: Stage, beside: AnyArray | None = None) -> str | None:
    """The words for a bias, for outputs narrower than float32. beside: in place of what the stage measured the output
    against, rounded."""
    if float_format(comparison.precision).precision >= 24 or stage.noise.largest == 0.0:
        return None
    # Near a tie either neighbour is right: whole classes of quotients lie there.
    rounded = np.where(stage.noise.ratios <= 1, comparison.actual, round_to(stage.center, comparison.precision))
    limit = noise_ratio.ELEMENTWISE_RMS if comparison.elementwise else noise_ratio.RMS
    if stage.source == EQUAL_TERMS:
        # What equal terms lose in a sum moves all that it enters.
        limit *= stage.limits.largest / noise_ratio.LARGEST
    if stage.source == BETWEEN_STEPS:
        rounded, limit = round_to(stage.center, comparison.precision), STEPS_BIAS
    rounded = rounded if beside is None else beside
    for allowed in _scales_of_bias(comparison, stage):
        found: tuple[Bias, ...] = noise_ratio.biases(
            comparison.actual, rounded, stage.center, comparison.expected, allowed
        )
        for shift, words in zip(found, ("shifted", "scaled"), strict=False):
            if shift.beyond(limit):
                return f"{words} on average by {shift.effect:,.4g} noise scales (limit {limit:g}), t = {shift.t:,.4g}"
    return None


def _scales_of_bias(comparison: Comparison, stage: Stage) -> Iterator[AnyArray]:
    """Half of float16's smallest subnormal is nothing that rounding shifts an average by: where another scale comes of
    it, float32's counts as well."""
    scales: list[AnyArray] = []
    for dtype in (comparison.precision, np.dtype(np.float32)):
        with np.errstate(invalid="ignore", over="ignore"):
            scale = noise_ratio.scale(
                comparison.expected,
                stage.spread,
                dtype=dtype,
                roundoff=comparison.roundoff,
                floor=stages.floor_of(comparison),
                weights=comparison.weights,
            )
        if not any(np.array_equal(scale, known, equal_nan=True) for known in scales):
            scales.append(scale)
            yield scale


def _verdict(
    comparison: Comparison,
    stage: Stage,
    outcome: Outcome,
    reason: str = "",
    measured: Mapping[str, Metric] | None = None,
) -> OutputVerdict:
    """measured: what describes the output, where that is known."""
    actual, noise = comparison.actual, stage.noise
    found: dict[str, Metric] = dict(measured or metrics.describe(actual, comparison.expected))
    found |= {
        "noise_ratio": noise.largest,
        "noise_ratio_limit": stage.limits.largest,
        "noise_rms": noise.rms,
        "noise_rms_limit": stage.limits.rms,
        "k": stage.k,
        "scale_from": stage.source,
    }
    if noise.undecided:
        found["undecided"] = noise.undecided
    terms = summed_terms(comparison)
    if terms.count > noise_ratio.FAN_IN_START:
        found["fan_in"] = terms.count
        if terms.assumed:
            found["fan_in_assumed"] = True
    worst = elements(comparison, noise.ratios, noise.ratios) if outcome not in ("pass", "skip") else ()
    return OutputVerdict(
        comparison.name,
        actual.shape,
        dtype_name(actual.dtype),
        outcome,
        "noise",
        reason,
        found,
        worst,
        noise_ratios=histogram(noise.ratios) if comparison.plotted else None,
        basis=Basis(comparison, stage) if outcome == "error" or comparison.sampled else None,
        detects=detects_of(comparison, stage, terms) if outcome == "pass" else None,
    )
