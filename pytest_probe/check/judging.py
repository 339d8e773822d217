"""What the standard says of a replay: both sides' outputs paired, each pair judged, and the verdict on all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe import inputs
from pytest_probe.check.both_sides import BothSides, Reference, results
from pytest_probe.check.comparisons import CaseEvidence, comparisons
from pytest_probe.check.determinism import Repeats
from pytest_probe.check.engines import Engines
from pytest_probe.check.gradients import (
    backward_replays,
    given_gradients,
    gradient_sides,
    large_gradients,
    unless_refused,
)
from pytest_probe.check.large.pieces import Pieces, Sampled
from pytest_probe.check.large.sampler import Sampler, compared_in_samples
from pytest_probe.check.large.scan import StepsOf
from pytest_probe.check.pair_metrics import baseline_metrics, crc
from pytest_probe.check.perturbed import OutputRuns
from pytest_probe.check.reference import other_reading
from pytest_probe.check.reference_device import check_judged
from pytest_probe.check.structure import (
    OutputPairs,
    PairedOutputs,
    backward_sides,
    changed_and_not_returned,
    forward_sides,
    named_gradients,
    nearest_structure,
    with_gradients_promised,
    with_promises,
)
from pytest_probe.errors import TooLarge
from pytest_probe.model.case import Case
from pytest_probe.model.comparison import Comparison, Standard
from pytest_probe.model.device_arrays import Outputs, lying
from pytest_probe.model.device_modes import Behaviour, behaviour
from pytest_probe.model.run import Array, Leaf, floats_of, mapped
from pytest_probe.model.verdict import GRANTED, SEVERITY, ArgumentRow, OutputVerdict, Verdict, conclusion
from pytest_probe.numerics.arrays import equal_in_float64
from pytest_probe.numerics.dtypes import AnyArray, dtype_name, is_complex, is_packed, unpacked, widen
from pytest_probe.standards.as_written import beside_written
from pytest_probe.standards.auto import known_steps, opening
from pytest_probe.standards.device_modes.allowed import under_modes
from pytest_probe.standards.diagnosis import Depth, diagnose
from pytest_probe.standards.exact import correctly_rounded
from pytest_probe.standards.noise.explanation import Stage
from pytest_probe.standards.noise.stages import BETWEEN_STEPS
from pytest_probe.standards.noise.summed_terms import may_use_winograd
from pytest_probe.standards.tables import adds_products, classes_of
from pytest_probe.standards.tools import measures
from pytest_probe.user_errors import first_line

# The standard of an output that is wrong as a release of the framework is known to be.
KNOWN = "known finding"
# Elements whose range is taken at a time.
PART = 1 << 20
# How reading the arguments of one function as those of another ends.
UNREADABLE = (TypeError, ValueError, LookupError, AttributeError)


class OutputVerdicts(Struct, frozen=True):
    """The verdicts on a case's outputs, and both sides of the worst and of all; replay has the arguments that a report
    shows, notes tell how several runs differ."""

    outputs: tuple[OutputVerdict, ...]
    worst: OutputPairs | None
    replay: BothSides
    compared: PairedOutputs
    notes: tuple[str, ...] = ()


class Judging(Struct, frozen=True):
    """Judges replays by a run's standard; whole gives the reference in full of a call that was cut."""

    engines: Engines
    whole: Callable[[Reference], Reference]

    def of(self, case: Case, replay: BothSides) -> OutputVerdicts:
        """The verdicts on a case: of a call that is cut by its pieces, and in full where these do not explain all.
        Where the whole is too large for that, what a sample shows counts."""
        if replay.reference.corner is None:
            return self.judged(case, self.paired(case, replay))
        # Replays, and what the source gave for each.
        parts: Sequence[tuple[BothSides, Mapping[str, AnyArray]]]
        if case.direction == "forward":
            parts = [(replay, results(replay.actual, changed_and_not_returned(replay)))]
        else:
            parts = given_gradients(case, replay, self.engines.request.seed)
        found, explains_all = self._in_pieces(case, parts)
        if found is not None and explains_all:
            return found
        arrays = [leaf.array for leaf in replay.reference.leaves.values()]
        arrays += (array for _, given in parts for array in given.values())
        elements = sum(array.size for array in arrays)
        available = inputs.available_memory(self.engines.request.workers)
        try:
            if found is not None and inputs.bytes_to_judge(elements, all_runs=False) > available:
                return found
            whole = self._in_full(case, parts)
        except TooLarge:
            if found is None:
                raise
            return found
        # An error asks for all further runs. Where these do not fit, the sample's counts, if its reference is that of
        # the whole: a call may give at all windows what pieces of it would, and elsewhere not.
        too_large = inputs.bytes_to_judge(elements, all_runs=True) > available
        if found is not None and too_large and _is_part(found, whole):
            return found
        return self.judged(case, whole)

    def _in_full(self, case: Case, parts: Sequence[tuple[BothSides, Mapping[str, AnyArray]]]) -> PairedOutputs:
        whole: list[tuple[BothSides, Mapping[str, AnyArray]]] = []
        for part, given in parts:
            reference = self.whole(part.reference)
            rounded = part.rounded and other_reading(reference)
            whole.append((replace(part, reference=reference, rounded=rounded), given))
        if case.direction == "forward":
            return self.paired(case, whole[0][0])
        return PairedOutputs.of(*(nearest_structure(gradient_sides(part, given)) for part, given in whole))

    def _in_pieces(
        self, case: Case, parts: Sequence[tuple[BothSides, Mapping[str, AnyArray]]]
    ) -> tuple[OutputVerdicts | None, bool]:
        """The verdicts of the pieces, and whether they explain all elements; None where both sides differ in structure,
        or the judge of the API looks at more than elements."""
        found: list[OutputPairs] = []
        for replay, actual in parts:
            promised = with_promises(OutputPairs(replay, {}, {}, ()), self.engines)
            pieces = Pieces.of(promised.replay, case.direction, lying(actual), case.record.name)
            sides = None if promised.structural or pieces is None else self._places(case, pieces)
            if sides is None or pieces is None:
                return None, False
            found += sides
        given = {name: value for _, actual in parts for name, value in lying(actual).items()}
        compared = PairedOutputs(found[0].replay, Outputs(given), tuple(found))
        outputs, worst = self._outputs(case, compared)
        explains_all = all(_holds_in_full(output, given) for output in outputs)
        outputs = tuple(replace(output, basis=None) for output in outputs)
        return OutputVerdicts(outputs, worst, worst.replay, compared), explains_all

    def _places(self, case: Case, pieces: Pieces) -> tuple[OutputPairs, ...] | None:
        """Both sides where elements are judged: drawn ones, and if these are explained the ones that stay open."""
        drawn = pieces.drawn()
        if drawn is None:
            return None
        try:
            verdicts = self._by_rule(case, drawn, by_class=True)
        except UNREADABLE:
            return None
        if not all(_holds_in_full(verdict, pieces.actual) for verdict in verdicts):
            return (drawn,)
        tests = {verdict.name.removeprefix("grad."): opening(verdict) for verdict in verdicts}
        known = {name: test for name, test in tests.items() if test is not None}
        if known.keys() != tests.keys():
            return None
        # What gives the 16-bit steps of a part, by the names of the tensors whose drawn elements are just these.
        found: dict[str, StepsOf] = {}
        for verdict in verdicts:
            evidence = known_steps(verdict)
            if isinstance(evidence, OutputRuns):
                found[verdict.name.removeprefix("grad.")] = evidence.source.steps_of
        return pieces.in_reading(drawn).judged_places(drawn, known, found)

    def paired(self, case: Case, replay: BothSides) -> PairedOutputs:
        """Both sides' outputs in the case's direction, or their gradients: a graph gives these once."""
        if replay.reference.contraction is not None:
            return self._in_samples(case, replay)
        if case.direction == "forward":
            sides = nearest_structure([forward_sides(reading) for reading in replay.readings()])
            return PairedOutputs.of(with_promises(sides, self.engines))
        parts = backward_replays(case, replay, self.engines.request.seed)
        found = (with_gradients_promised(nearest_structure(gradient_sides(part))) for part in parts)
        return PairedOutputs.of(
            *unless_refused(found, lambda side, words: replace(side, replay=side.replay.noted(words)))
        )

    def _in_samples(self, case: Case, replay: BothSides) -> PairedOutputs:
        request, contraction = self.engines.request, replay.reference.contraction
        assert contraction is not None
        actual: Mapping[str, AnyArray]
        if case.direction == "backward":
            replay, actual = large_gradients(case, replay, request.seed)
        else:
            actual = replay.actual.outputs
        key = case.record.name
        sampler = Sampler(replay, contraction, request.flops, case.direction, key, request.seed)
        compared = compared_in_samples(sampler, actual)
        if case.direction == "backward":
            return compared
        whole, *samples = compared.sides
        return replace(compared, sides=(with_promises(whole, self.engines), *samples))

    def judged(self, case: Case, compared: PairedOutputs) -> OutputVerdicts:
        """The verdicts on all outputs; of several runs, where the device makes them."""
        # What draws random numbers, or leaves memory as it was, is made to differ.
        differs = not classes_of(compared.replay.reference.candidate.name).isdisjoint(("random", "uninitialised"))
        if self.engines.request.repeat > 1 and compared.replay.source.runs_again and not differs:
            return self._repeated(case, compared)
        outputs, worst = self._outputs(case, compared)
        return OutputVerdicts(outputs, worst, compared.replay if len(compared.sides) > 1 else worst.replay, compared)

    def _outputs(self, case: Case, compared: PairedOutputs) -> tuple[tuple[OutputVerdict, ...], OutputPairs]:
        """The verdict on each output, and both sides of the worst."""
        judged = []
        for sides in compared.sides:
            found, other = self._by_sides(case, sides), sides.other_reading
            # What a device rounds to 16 bits between its steps may bring its results nearer to the wrong reading: the
            # other one counts where it alone explains them.
            if other is not None and any(output.verdict == "error" for output in found):
                other = replace(other, structural=sides.structural)
                others = self._by_sides(case, other)
                if not any(output.verdict == "error" for output in others):
                    sides, found = other, others
            judged.append((sides, found))
        if self.engines.request.baseline:
            judged = [(sides, _with_crc_of_whole(sides, outputs, compared)) for sides, outputs in judged]
        # -1: nothing at all was judged on that side.
        worst = max(judged, key=lambda item: max((SEVERITY[output.verdict] for output in item[1]), default=-1))
        return tuple(output for _, outputs in judged for output in outputs), worst[0]

    def _by_sides(self, case: Case, sides: OutputPairs) -> tuple[OutputVerdict, ...]:
        if self.engines.float64_elsewhere:
            check_judged(sides, case.direction)
        try:
            judged = self._by_rule(case, sides, by_class=True)
        except UNREADABLE as error:
            # Of a recorded API the arguments are known: what cannot be read is a fault of ours. A test's function may
            # have others.
            if case.pair is None:
                raise
            why = f"judged by noise, because the rule of {case.api} cannot read these arguments ({first_line(error)})"
            judged = tuple(
                verdict if verdict.verdict == "pass" else replace(verdict, reason=f"{verdict.reason}; {why}")
                for verdict in self._by_rule(case, sides, by_class=False)
            )
        if sides.sample is not None:
            judged = tuple(map(sides.sample.placed, judged))
        return (*sides.structural, *judged)

    def _by_rule(self, case: Case, sides: OutputPairs, *, by_class: bool) -> tuple[OutputVerdict, ...]:
        """The verdicts of the rule that an API has."""
        asked = comparisons(sides, case.direction, self.engines.request.seed, by_class=by_class)
        drawn = case.demands is not None and case.demands.drawn and not sides.replay.reference.candidate.replaced
        judge = self._drawn_output if drawn else self._output
        standard = self.engines.standard
        return tuple(item if isinstance(item, OutputVerdict) else judge(standard, item) for item in asked)

    def _drawn_output(self, standard: Standard, comparison: Comparison) -> OutputVerdict:
        """The verdict in a search, which meets what the framework's release is known to compute wrongly in each run:
        a warning where the output is right but for that."""
        verdict = self._output(standard, comparison)
        if verdict.verdict != "error" or not comparison.case.on_cpu:
            return verdict
        right = correctly_rounded(comparison.expected, comparison.actual.dtype)
        for finding in self.engines.framework.known_findings(comparison):
            actual = np.where(finding.elements, right, comparison.actual)
            if standard.judge(replace(comparison, actual=actual)).verdict != "error":
                reason = f"{finding.description} ({verdict.reason})"
                return replace(verdict, verdict="warning", standard=KNOWN, reason=reason, diagnosis=None)
        return verdict

    def _output(self, standard: Standard, comparison: Comparison) -> OutputVerdict:
        request = self.engines.request
        comparison = replace(comparison, plotted=True) if request.plotted else comparison
        exact = request.inputs == "exact" and comparison.direction == "forward" and adds_products(comparison.classes)
        # In whatever order a kernel adds: not where it may transform them first, as Winograd does.
        if exact and not may_use_winograd(comparison):
            case = replace(comparison.case, classes=comparison.classes | {"exact_inputs"})
            comparison = replace(comparison, case=case)
        verdict = judge_with_modes(
            standard,
            comparison,
            lambda: self.engines.modes_of(comparison),
            depth=lambda: self.engines.depth(comparison.call.api),
        )
        if verdict.diagnosis is not None:
            self.engines.diagnosed(comparison.call.api, verdict.diagnosis)
        if request.measured:
            verdict = replace(verdict, measures=measures(comparison, request.standard))
        if request.baseline:
            verdict = replace(verdict, baseline=baseline_metrics(comparison, verdict))
        return verdict

    def _repeated(self, case: Case, compared: PairedOutputs) -> OutputVerdicts:
        """The worst verdict on each output of several runs, with how far they lie apart."""
        repeats = Repeats()
        worst: OutputPairs | None = None
        for number in range(self.engines.request.repeat):
            compared = self._again(case, compared) if number else compared
            # A run that is like another, bit for bit, has its verdict.
            if repeats.add(compared.actual):
                outputs, sides = self._outputs(case, compared)
                worst = sides if repeats.judged(outputs) else worst
        return OutputVerdicts(repeats.outputs(), worst, compared.replay, compared, repeats.notes())

    def _again(self, case: Case, compared: PairedOutputs) -> PairedOutputs:
        """Both sides of another run of the device, with the same reference."""
        if case.direction == "backward" and compared.replay.reference.contraction is None:
            found: list[OutputPairs] = []
            for sides in compared.sides:
                replay = replace(sides.replay, actual=sides.replay.source.forward(sides.replay.reference))
                actual = named_gradients(replay.source.gradients(replay))
                found.append(with_gradients_promised(backward_sides(replay, actual, sides.expected)))
            return PairedOutputs.of(*found)
        replay = compared.replay
        replay = replace(replay, actual=replay.source.forward(replay.reference))
        if replay.reference.contraction is not None:
            return self.paired(case, replay)
        return PairedOutputs.of(with_promises(forward_sides(replay), self.engines))


def _holds_in_full(sampled: OutputVerdict, actual: Mapping[str, AnyArray]) -> bool:
    """Does the verdict on a sample of an output tell how far other elements may be off? A warning does where 16-bit
    steps explain the error; on the CPU the whole must have the bits of its kernels, too."""
    if sampled.verdict != "warning" or sampled.basis is None:
        return sampled.verdict == "pass"
    comparison, stage = sampled.basis.comparison, sampled.basis.measured
    if not isinstance(comparison, Comparison) or not isinstance(stage, Stage) or stage.source != BETWEEN_STEPS:
        return False
    evidence = comparison.evidence
    if not comparison.case.on_cpu:
        return True
    return isinstance(evidence, CaseEvidence) and evidence.is_of_cpu(np.asarray(actual[evidence.name]))


def _is_part(found: OutputVerdicts, whole: PairedOutputs) -> bool:
    """Does the reference in full give what that of the pieces gave?"""
    expected = {name: array for sides in whole.sides for name, array in sides.expected.items()}
    for sides in found.compared.sides:
        for name, array in sides.expected.items():
            own = expected.get(name)
            if isinstance(sides.sample, Sampled) and own is not None:
                own = sides.sample.of_whole(name.removeprefix("grad."), own)
            if own is None or own.shape != array.shape or not equal_in_float64(own, array):
                return False
    return True


def _with_crc_of_whole(
    sides: OutputPairs, outputs: tuple[OutputVerdict, ...], compared: PairedOutputs
) -> tuple[OutputVerdict, ...]:
    """Metrics are of a sample, the bits of all that the device gave."""
    if sides.sample is None:
        return outputs
    return tuple(
        replace(
            output,
            baseline={**output.baseline, "crc": crc(compared.actual[output.name.removeprefix("grad.")])},
        )
        if "crc" in output.baseline
        else output
        for output in outputs
    )


def verdict_on(judged: OutputVerdicts, standard: str) -> Verdict:
    """That of the worst output, with the arguments where a report shows them."""
    outcome, reason = conclusion(judged.outputs)
    shared = judged.replay.reference.candidate.shared
    if shared and outcome == "pass":
        outcome, reason = "warning", shared
    rows = argument_rows(judged.replay) if SEVERITY[outcome] > SEVERITY["pass"] else ()
    reference = judged.replay.reference
    names = sorted({dtype_name(dtype) for dtype in floats_of(reference.leaves).values()})
    replaced = reference.candidate.replaced
    # What outputs were granted, and modes that explain what a user's function gives: no flag of the framework's allows
    # them.
    granted = [f"{each.name}: granted {each.metrics[GRANTED]}" for each in judged.outputs if GRANTED in each.metrics]
    modes = {str(output.metrics["mode"]) for output in judged.outputs if "mode" in output.metrics}
    rounding = ", ".join(sorted(mode for mode in modes if not behaviour(mode).flushes))
    if rounding and reference.of_user:
        granted.append(
            f"within {rounding}, which --probe-allow names: the framework's flags say nothing of this function"
        )
    notes = (*reference.notes, *judged.notes, *filter(None, [shared]), *granted)
    return Verdict(outcome, standard, reason, "", "+".join(names), judged.outputs, rows, notes, replaced)


def argument_rows(replay: BothSides) -> tuple[ArgumentRow, ...]:
    """The argument table of a report."""
    found: list[ArgumentRow] = []

    def row(value: Any, name: str) -> Any:
        if isinstance(value, (Leaf, Array)):
            found.append(ArgumentRow(name, value.array.shape, dtype_name(value.array.dtype), _range(value.array)))
        else:
            found.append(ArgumentRow(name, None, type(value).__name__, str(value)[:60]))
        return value

    mapped(replay.reference.candidate.arguments, row)
    found.extend(
        ArgumentRow(f"grad.{name}", array.shape, array.dtype.name, _range(array))
        for name, array in replay.incoming.items()
    )
    return tuple(found)


def _range(array: AnyArray) -> str:
    """In parts, since an argument may be most of the memory."""
    if not array.size:
        return "empty"
    flat = (unpacked(array) if is_packed(array) else array).reshape(-1)
    found = []
    for start in range(0, flat.size, PART):
        part = flat[start : start + PART]
        wide = np.abs(part) if is_complex(part.dtype) else widen(part)
        known = wide[np.isfinite(wide)]
        if known.size:
            found.append((known.min(), known.max(), known.size))
    if not found:
        return "no finite value"
    low, high, finite = min(part[0] for part in found), max(part[1] for part in found), sum(part[2] for part in found)
    text = f"{low:.6g} .. {high:.6g}"
    return text if finite == flat.size else f"{text}, {flat.size - finite:,} not finite"


def judge_with_modes(
    standard: Standard,
    comparison: Comparison,
    allowed: Callable[[], Sequence[Behaviour]],
    *,
    depth: Callable[[], Depth] = lambda: "whole",
) -> OutputVerdict:
    """The standard's verdict; if that is an error or a warning, the verdict under an allowed mode that explains it,
    else the error with its likely cause.

    allowed gives the modes, depth how far to search for the cause; both are called only after an error or a warning.
    """
    verdict = standard.judge(comparison)
    if comparison.case.rounds:
        verdict = beside_written(standard, comparison, verdict)
    if verdict.verdict not in ("error", "warning"):
        return verdict
    passed = under_modes(standard, comparison, verdict, allowed())
    if passed is not None or verdict.verdict == "warning":
        return passed or verdict
    deep = depth()
    diagnosis = None if deep == "none" else diagnose(standard, comparison, verdict, deep)
    return replace(verdict, diagnosis=diagnosis, basis=None)
