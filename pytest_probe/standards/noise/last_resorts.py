"""Rows of the table that are asked last, of errors that nothing else explains.

Sums of which a healthy device takes other terms than the reference does: where zero times NaN, or times an infinity,
decides, some kernels multiply, some leave such terms out. Terms that each lose a part of a roundoff, towards zero, as
those of tensor cores do in 16 bit; or that are added one after another. Steps of float64 functions in float32. And
16-bit kernels of a framework whose steps are not written down.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec.structs import replace

from pytest_probe.model.comparison import INCOMING, Assumption, Comparison
from pytest_probe.model.device_modes import CUT_SUMS
from pytest_probe.numerics.arrays import same_bytes, untied
from pytest_probe.numerics.dtypes import (
    AnyArray,
    BoolArray,
    alike,
    float_format,
    is_complex,
    is_floating,
    round_to,
    ulp,
    widen,
)
from pytest_probe.standards.noise import hidden_faults, stages
from pytest_probe.standards.noise.added_in_order import added_in_order
from pytest_probe.standards.noise.explanation import (
    STAGES,
    Examined,
    Explained,
    chooses,
    overflows_inside,
    rounds_each_sum,
    whose_result,
)
from pytest_probe.standards.noise.summed_terms import summed_terms

# What stands in for NaN and infinities, first one and then the other: what zero takes leaves no trace of either.
STAND_INS = (1.0, -2.0)
# Runs that choose others of equal elements: two tell whether there are any. 64 miss one of eight in 5,000 elements.
FIRST_CHOICES, MOST_CHOICES = 2, 64
# Of how far the elements of a sum move: float64 adds them up to less, and one that is lost, or chosen twice, is more.
UNCHANGED, CHANGED = 2.0**-40, 2.0**-10
# Of how far 64 runs move an element at most: others would move it a little further.
FURTHER = 2.0
# Of how far an element moves where other zeros are the largest: it moves as far where they are the smallest if it has
# crossed an edge, and is not among several that one may be chosen of.
DIFFER = 1 / 64
# Roundings of a sum in addition to one a term: of a factor, or a mean.
MORE_ROUNDINGS = 2
# Of what single terms lose: a device that cuts sixteen together loses a tenth. Steps of an eighth are too coarse where
# all loses 8,000 roundoffs.
SHARES = tuple(np.linspace(0.02, 1.0, 50))


def cut_sums(output: Examined) -> Explained | None:
    """The reference loses what the device may have lost. How many terms are cut together, and to how many digits,
    differs from one generation to the next: of the shares of what single terms would lose, that counts which leaves the
    least noise in the output as a whole."""
    comparison, spread = output.comparison, output.judged_by.spread
    other = comparison.evidence.alternative(comparison, Assumption(CUT_SUMS))
    if other is None or not other.expected.shape:
        return None
    with np.errstate(invalid="ignore"):  # of equal infinities
        lost = other.expected - comparison.expected
        shifted = {share: comparison.moved_by(share * lost) for share in (0.0, *SHARES)}
    noise = {share: stages.noise_of(each, spread).rms for share, each in shifted.items()}
    share = min(noise, key=lambda each: noise[each])
    return _if_it_passes(output, shifted[share]) if share else None


def in_single(output: Examined) -> Explained | None:
    """Steps of a function may compute in the narrower argument's dtype, exp(x) in x exp(y) - x y. On another device
    the CPU's own result tells."""
    comparison = output.comparison
    single = replace(comparison, roundoff=float_format("float32").roundoff, single=None)
    assert comparison.single is not None
    return _if_it_passes(output, replace(single, evidence=comparison.single))


def _if_it_passes(output: Examined, comparison: Comparison) -> Explained | None:
    found = output.again(comparison)
    return Explained(found.stage, comparison=comparison) if found.outcome == "pass" else None


def one_after_another(output: Examined) -> Explained | None:
    """The sums are made again in such an order, and each error is what they lose, to a tenth."""
    comparison, stage = output.comparison, output.judged_by
    added = added_in_order(comparison, stage.noise, stage.limits, stages.scale_of(comparison, stage.spread))
    return None if added is None else Explained(stage, {"added": added.description})


def own_kernel(output: Examined) -> Explained | None:
    """What the framework's own function gives on its CPU, bit for bit, or by its kernels on another device that are
    known. A function or a device of somebody else gets nothing from this."""
    comparison = output.comparison
    whose, actual = whose_result(comparison), comparison.actual
    if not comparison.case.on_cpu:
        known = f"narrow_{comparison.direction}_{comparison.case.own_kernels}"
        whose = "the framework" if known in comparison.classes else ""
    if not whose:
        return None
    # An overflow inside is no rounding: the other elements are judged.
    rounded = round_to(comparison.expected, actual.dtype)
    lost = np.isfinite(widen(rounded)) & ~np.isfinite(widen(actual))
    if lost.any():
        if (lost & ~overflows_inside(comparison)).any():
            return None
        comparison = replace(comparison, actual=np.where(lost, rounded, actual))
    runs = comparison.evidence.perturbed(STAGES[-1]) + comparison.evidence.float32_steps(STAGES[-1])
    stage = stages.inside_kernel(comparison, runs, output.limits)
    explained = stage.within_limits and hidden_faults.bias(comparison, stage) is None
    explained |= rounds_each_sum(comparison) and _within_sums(comparison)
    if not explained and "narrow_unbounded" not in comparison.classes:
        return None
    if lost.any():
        ratios = np.where(lost, np.inf, stage.noise.ratios)
        stage = replace(stage, noise=replace(stage.noise, ratios=ratios, largest=np.inf, rms=np.inf))
    return Explained(stage, {"whose": whose, "overflows": " and overflows" if lost.any() else ""})


def _within_sums(comparison: Comparison) -> bool:
    """Is no element farther off than rounding each sum, or product, of its n terms leads? That is n roundoffs of what
    their absolute values give, and all of it at most: of many terms the last may be lost. A choice stays as it is."""
    found, chosen = comparison.evidence, chooses(comparison)
    given = {path: value for path, value in _floats(comparison).items() if not chosen or path.startswith(INCOMING)}
    sizes, expected = found.with_arguments({path: np.abs(value) for path, value in given.items()}), comparison.expected
    if sizes is None or sizes.shape != expected.shape:
        sizes = np.full(expected.shape, np.max(np.abs(expected), initial=0.0, where=np.isfinite(expected)))
    terms = found.terms() or summed_terms(comparison).count
    share = min(1.0, (terms + MORE_ROUNDINGS) * float_format(comparison.precision).roundoff)
    wide = widen(comparison.actual)
    with np.errstate(invalid="ignore"):
        beyond = np.abs(wide - expected) - ulp(expected, comparison.precision) / 2
        return bool((alike(wide, expected) | (beyond <= share * np.abs(sizes))).all())


def kernels_inside(output: Examined) -> Explained | None:
    """A function of the user's, right where each kernel of the framework's own CPU inside it rounds once."""
    comparison, stage = output.comparison, output.judged_by
    inside = comparison.evidence.kernels_inside()
    # None where the function gives something else each time.
    if inside is None or not same_bytes(inside.values, comparison.actual):
        return None
    if output.again(replace(comparison, actual=inside.once)).outcome == "error":
        return None
    return Explained(stage, {"whose": inside.framework})


def left_out(output: Examined) -> Explained | None:
    """The reference leaves out terms with a factor of zero, in elements that are numbers where it is NaN for such a
    term alone, and where not all kernels of the CPU multiply."""
    comparison = output.comparison
    wide = widen(comparison.actual)
    numbers = np.isnan(comparison.expected) & np.isfinite(wide)
    if not numbers.any() or not (numbers & _differ(comparison)).any():
        return None
    runs = [comparison.evidence.with_arguments(values) for values in _stand_ins(comparison)]
    if len(runs) < len(STAND_INS) or any(run is None or run.shape != wide.shape for run in runs):
        return None
    leaving, second = (widen(run) for run in runs if run is not None)
    return _unless_wrong(output, numbers & (leaving == second), leaving)


def multiplied(output: Examined) -> Explained | None:
    """The reference is NaN as well where the framework's own kernels of the CPU are, in the case's dtype, and an
    argument is not finite."""
    comparison = output.comparison
    there = np.isnan(widen(comparison.actual)) & np.isfinite(comparison.expected)
    if not there.any() or not any(_stand_ins(comparison)):
        return None
    kernel = comparison.evidence.reference_on_cpu()
    if kernel is None or kernel.shape != there.shape:
        return None
    return _unless_wrong(output, there & np.isnan(widen(kernel)), np.nan)


def other_zeros(output: Examined) -> Explained | None:
    """The gradient of an argument, where others of its zeros are chosen: zeros that have a gradient on the device are
    the largest, or the smallest, by less than any rounding."""
    comparison, place = output.comparison, output.comparison.name.removeprefix("grad.")
    chosen = (comparison.expected == 0) & (widen(comparison.actual) != 0)
    values = _floats(comparison).get(place) if comparison.direction == "backward" else None
    if not chosen.any() or values is None or values.shape != chosen.shape:
        return None
    moved = (untied(values, np.where(chosen, height, 1.0)) for height in (1.5, 0.5))
    runs = [comparison.evidence.with_arguments({place: each}) for each in moved]
    if any(run is None or run.shape != chosen.shape for run in runs):
        return None
    found = [run - comparison.expected for run in runs if run is not None]
    among = np.abs(found[0] - found[1]) > DIFFER * np.maximum(*np.abs(found))
    for by in found if among.any() else ():
        ruling = output.again(comparison.moved_by(np.where(among, by, 0.0)))
        if ruling.outcome == "pass":
            return Explained(ruling.stage)
    return None


def other_choices(output: Examined) -> Explained | None:
    """Each element is what one of the runs has there that choose others of equal elements."""
    moves, off = _moves_of_choices(output.comparison)
    by = np.zeros_like(off)
    for move in moves:
        by = np.where(np.abs(off - move) < np.abs(off - by), move, by)
    return _right_if_chosen(output, by, moves)


def undecided_choices(output: Examined) -> Explained | None:
    """All that is wrong is what such a choice changes, by no more than choices do: there are more than runs show."""
    moves, off = _moves_of_choices(output.comparison)
    most = np.max(np.abs(moves), axis=0, initial=0.0)
    return _right_if_chosen(output, np.where((most > 0) & (np.abs(off) <= FURTHER * most), off, 0.0), moves)


def _moves_of_choices(comparison: Comparison) -> tuple[list[AnyArray], AnyArray]:
    """How far runs are from the reference that choose others of equal elements, and how far the device is; no run where
    the call chooses among none."""
    with np.errstate(invalid="ignore"):
        for count in (FIRST_CHOICES, MOST_CHOICES):
            runs = comparison.evidence.chosen_otherwise(count)
            moves = [run - comparison.expected for run in runs if run.shape == comparison.expected.shape]
            if not any(move.any() for move in moves):
                return [], np.zeros(comparison.expected.shape)
        return moves, widen(comparison.actual) - comparison.expected


def _right_if_chosen(output: Examined, by: AnyArray, moves: list[AnyArray]) -> Explained | None:
    """The output compared with a reference that is larger by that, if sums over a dimension that no choice changes
    remain what they were."""
    for axis in range(by.ndim if by.any() else 0):
        most = np.max([np.sum(np.abs(move), axis) for move in moves], axis=0)
        changed = np.max([np.abs(np.sum(move, axis)) for move in moves], axis=0)
        if np.any((changed <= UNCHANGED * most) & (np.abs(np.sum(by, axis)) > CHANGED * most)):
            return None
    ruling = output.again(output.comparison.moved_by(by)) if by.any() else None
    return Explained(ruling.stage, {"count": np.count_nonzero(by)}) if ruling and ruling.outcome == "pass" else None


def _unless_wrong(output: Examined, there: BoolArray, values: AnyArray | float) -> Explained | None:
    """The output compared with a reference that has other values in some places, where it is no error then."""
    if not there.any():
        return None
    found = output.again(output.comparison.with_reference(lambda run: np.where(there, values, run)))
    return None if found.outcome == "error" else Explained(found.stage, {"count": np.count_nonzero(there)})


def _differ(comparison: Comparison) -> BoolArray:
    """Where a kernel of the CPU has a number and the reference, by another, NaN."""
    evidence = comparison.evidence
    kernels = [evidence.cpu_result(), *evidence.float32(1)]
    found: BoolArray = np.zeros(comparison.expected.shape, dtype=bool)
    for values in kernels:
        if values is not None and values.shape == found.shape:
            found |= np.isfinite(widen(values)) & np.isnan(comparison.expected)
    return found


def _floats(comparison: Comparison) -> dict[str, AnyArray]:
    """The arguments and incoming gradients that are arrays of floats, by their places."""
    call = comparison.call
    given = {call.paths.get(name, name): value for name, value in call.given.items()}
    if comparison.direction == "backward":
        given |= {f"{INCOMING}{name}": value for name, value in comparison.case.incoming.items()}
    arrays = {path: value for path, value in given.items() if isinstance(value, np.ndarray)}
    return {path: value for path, value in arrays.items() if is_floating(value.dtype) or is_complex(value.dtype)}


def _stand_ins(comparison: Comparison) -> Iterator[Mapping[str, AnyArray]]:
    """The arguments and incoming gradients that are not finite, with numbers in place of NaN and infinities; each of
    them twice."""
    odd = {path: value for path, value in _floats(comparison).items() if not np.isfinite(widen(value)).all()}
    if odd:
        for number in STAND_INS:
            yield {
                path: np.where(np.isfinite(widen(value)), value, np.asarray(number, value.dtype)).astype(value.dtype)
                for path, value in odd.items()
            }
