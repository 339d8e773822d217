"""Rows of the table that grow the allowed scale A, one kind of runs after another: S is the spread of all of them.

Most runs of an output that fails are made to find out whether the next one explains it. No later row grants an element
less than an earlier one does: what is above the limits beside the spread of all runs is so in every row. So errors far
beyond all limits are told by few runs.

Where a function has no jump (`smooth` in classes.yaml) a run moves each element by a random distance of one
distribution. Let three runs, one of each kind, leave elements F times above the limit. A device that is right errs by
no more than the limit times the largest of twelve such distances, so each of these elements must have moved F times
less in all of the three than in one of the others. One run in 0.4 F does that, of distances in a normal distribution
whose largest of twelve is three deviations. For one element and F = 1,024 that makes a chance of 10^-8 in three runs,
for eight that move apart and F = 32 one of 10^-27. And no healthy error uses up its limit, as this assumes: a kernel
that errs by 37 of the 64 that are granted is the farthest known.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from pytest_probe.model.comparison import Comparison
from pytest_probe.numerics import allowed_scale, noise_ratio
from pytest_probe.numerics.dtypes import round_to, widen
from pytest_probe.numerics.noise_ratio import Limits, Noise
from pytest_probe.standards.noise import stages, steps
from pytest_probe.standards.noise.explanation import (
    STAGES,
    Examined,
    Explained,
    Stage,
    by_framework,
    elsewhere,
    may_choose,
    may_round_between,
    on_cpu,
)
from pytest_probe.standards.noise.hidden_faults import unstable
from pytest_probe.standards.noise.stages import AMONG_THEMSELVES, BETWEEN_STEPS
from pytest_probe.standards.noise.summed_terms import repeats

# What float32 kernels do among themselves shows their own rounding, and nothing else that may explain an error: a
# kernel that rounds inside to 11 bits errs by about 24 times what its runs differ by.
LIMITS_AMONG_FLOAT32_RUNS = Limits(16.0, 4.0)
# Times the largest ratio that is granted, of this many elements, and of one alone.
FAR, MANY, FAR_ALONE = 32.0, 8, 1024.0


def float64(output: Examined, k: int) -> Explained | None:
    """S of k runs on inputs moved by u_c."""
    stage = _of_float64(output, k)
    return None if stage is None else _if_within(output, stage)


def _of_float64(output: Examined, k: int) -> Stage | None:
    """None where the reference cannot be perturbed more often: another stage would say the same."""
    comparison, before = output.comparison, len(output.runs)
    if k and before != STAGES[STAGES.index(k) - 1]:
        return None
    output.runs = comparison.evidence.perturbed(k)
    if k and len(output.runs) == before:
        return None
    known = output.known.get(k)
    if known is not None:
        output.spread = known.spread
        return known
    output.spread = stages.with_runs(comparison, output.spread, output.runs[before:])
    stage = stages.measured_stage(comparison, output.spread, output.limits, len(output.runs), "float64")
    # The spread of a factory is its own.
    if stage.spread is output.spread:
        output.known[k] = stage
    return stage


def float32(output: Examined) -> Explained | None:
    """S with runs by the CPU's float32 kernels against R: another device's fault is not in them."""
    comparison = output.comparison
    spread = stages.beside_poles(comparison, output.spread)
    more = stages.not_vanished(comparison, output.runs, comparison.evidence.float32(STAGES[-1]))
    output.runs, output.spread = output.runs + more, stages.with_runs(comparison, spread, more)
    stage = stages.measured_stage(comparison, output.spread, output.limits, STAGES[-1], "float32")
    return _if_within(output, stage)


def float32_steps(output: Examined) -> Explained | None:
    """S with float64 runs whose steps are rounded to float32."""
    comparison = output.comparison
    if comparison.case.on_cpu:
        output.spread = stages.beside_poles(comparison, output.spread)
    more = comparison.evidence.float32_steps(STAGES[-1])
    output.runs, output.spread = output.runs + more, stages.with_runs(comparison, output.spread, more)
    return _if_within(output, stages.beside_all(comparison, output.spread, STAGES[-1]))


def adds_equal_terms(comparison: Comparison) -> bool:
    """a sum of mostly equal terms"""
    return repeats(comparison)


def equal_terms(output: Examined) -> Explained | None:
    """The same S; limits grow with the number of terms, since equal ones are rounded alike."""
    return _if_within(output, stages.of_equal_terms(output.comparison, output.stages[-1]))


def between_steps(output: Examined) -> Explained | None:
    """S with runs that round to 16 bit between kernels; measured against the nearest of them, not against R. Another
    kernel than the framework's own that rounds once gets nothing from this."""
    comparison = output.comparison
    sampled = comparison.evidence.narrow_steps(STAGES[-1])
    unlike = steps.far_from_steps(comparison, sampled) or steps.too_few_rounded(comparison, sampled)
    if unlike and not by_framework(comparison):
        return None
    return _if_within(output, stages.between_steps(comparison, output.runs))


def inside_kernel(output: Examined) -> Explained | None:
    """S with runs that round to 16 bit inside kernels, and inputs that move by u_o; measured against R."""
    return _if_within(output, stages.inside_kernel(output.comparison, output.runs, output.limits))


def among_themselves(output: Examined) -> Explained | None:
    """S with the distances of float32 runs from each other. Not from R: a fault of the kernel is in all its runs."""
    comparison, limits = output.comparison, output.limits
    among = allowed_scale.among(comparison.evidence.float32(STAGES[-1]), comparison.actual.dtype)
    own = stages.pooled_spread(comparison, stages.in_domain(comparison, among))
    if own is None:
        return None
    steps = next(stage for stage in reversed(output.stages) if stage.source == stages.STEPS_SOURCE)
    wider = own.joined(steps.spread)
    among_runs = LIMITS_AMONG_FLOAT32_RUNS
    rms = min(limits.rms, among_runs.rms * (limits.rms / noise_ratio.RMS_LIMIT))
    tight = Limits(min(limits.largest, among_runs.largest), rms)
    stage = stages.measured_stage(comparison, wider, tight, STAGES[-1], AMONG_THEMSELVES)
    return _if_within(output, stage)


def one_run_of_steps(comparison: Comparison) -> Stage | None:
    """The stage of 16-bit steps, where one run of these gives the CPU's output bit for bit: no further run can show it
    farther off. None else."""
    if not on_cpu(comparison) or not may_round_between(comparison) or stages.rounds_inside(comparison):
        return None
    runs = comparison.evidence.narrow_steps(1)
    if not runs or not np.array_equal(widen(round_to(runs[0], comparison.actual.dtype)), widen(comparison.actual)):
        return None
    expected = comparison.expected
    noise = Noise(np.zeros(expected.shape), 0.0, 0.0, int(np.count_nonzero(expected)), 0)
    return Stage(noise, stages.STEPS, 1, BETWEEN_STEPS, None, runs[0])


def bits_of_steps(output: Examined) -> Explained | None:
    """One run on exact inputs that rounds to 16 bit between kernels; all bits are equal."""
    stage = one_run_of_steps(output.comparison)
    return None if stage is None else Explained(stage)


def _if_within(output: Examined, stage: Stage) -> Explained | None:
    """What the stage explains, where the output is within its limits and not by unstable elements alone."""
    output.stages.append(stage)
    if not stage.within_limits:
        return None
    others = _without_unstable(output.comparison, stage)
    if others is None:
        return Explained(stage)
    output.by_unstable.append(others)
    return None


def _without_unstable(comparison: Comparison, stage: Stage) -> Stage | None:
    """The stage where unstable elements grant the others nothing; None where that leaves it within its limits."""
    spread = stage.spread
    if spread is None or not (stages.shares_rms(comparison) and may_choose(comparison)):
        return None
    moved = replace(comparison, expected=stage.center)
    # It passes without a share of RMS(S), so that no unstable element granted anything.
    if stages.noise_of(moved, spread, share=0.0).within(stage.limits):
        return None
    jumps = unstable(comparison, spread)
    if jumps is None or not jumps.any():
        return None
    stable = stages.noise_of(moved, replace(spread, size=np.where(jumps, 0.0, spread.size)))
    ratios = np.where(jumps, stage.noise.ratios, stable.ratios)
    found = noise_ratio.noise_of_ratios(ratios, comparison.expected, stage.noise.undecided, comparison.weights)
    far = np.where(jumps, spread.size, 0.0)
    return None if found.within(stage.limits) else replace(stage, noise=found, unstable=far)


def far_by_one_run(output: Examined) -> Stage | None:
    """The output beside one run of each kind, where more runs could not bring it within the limits; else None.

    Another device than the CPU may err as the CPU's own kernel does, so that this must be far nearer.
    """
    comparison = output.comparison
    case = comparison.case
    if "smooth" not in comparison.classes or case.on_cpu or case.narrow or comparison.allowance.emulated:
        return None
    if _farthest(comparison, _first(output)) is None:
        return None
    evidence = comparison.evidence
    if not (evidence.perturbed(1) and evidence.float32(1) and evidence.float32_steps(1)):
        return None
    found = stages.by_steps(comparison, 1)
    widest = stages.of_equal_terms(comparison, found) if repeats(comparison) else found
    farthest = _farthest(comparison, widest)
    theirs = None if farthest is None else steps.noise_of_cpu_result(comparison, found)
    if farthest is None or (theirs is not None and theirs.largest * FAR >= farthest):
        return None
    return found


def _farthest(comparison: Comparison, stage: Stage) -> float | None:
    """The largest ratio of finite numbers, where that is far enough above the limit; None else. What is zero and no run
    moves is granted another share of what others do, and counts for nothing here."""
    told = np.isfinite(comparison.actual) & np.isfinite(comparison.expected) & (comparison.expected != 0)
    ratios = stage.noise.ratios[told]
    largest, limit = float(ratios.max(initial=0.0)), stage.limits.largest
    far = largest > FAR_ALONE * limit or np.count_nonzero(ratios > FAR * limit) >= MANY
    return largest if far else None


def far_by_all_runs(output: Examined) -> Stage | None:
    """The last stage, where it shows that none before it is within its limits; else None."""
    comparison = output.comparison
    if not elsewhere(comparison) or not _first(output).noise.largest > FAR * output.limits.largest:
        return None
    found = stages.by_steps(comparison, STAGES[-1])
    widest = stages.of_equal_terms(comparison, found) if repeats(comparison) else found
    # Of other elements more may be granted in an earlier stage: of those that are zero and that no run moves.
    # So may be of those where the reference has no number.
    above = (widest.noise.ratios > widest.limits.largest) & (comparison.expected != 0)
    above &= np.isfinite(comparison.expected)
    return found if above.any() else None


def _first(output: Examined) -> Stage:
    """The first stage, which needs no run; where that is far off the second, since one run may grant all to healthy
    numbers next to zero."""
    begun = replace(output, runs=[], spread=None)
    first = _of_float64(begun, 0)
    assert first is not None
    far = first.noise.largest > FAR * first.limits.largest
    return (far and _of_float64(begun, 1)) or first
