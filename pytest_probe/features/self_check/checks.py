"""Asks a case the questions of --probe-standard=self: each is outputs of its verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.check import Case, CaseOutcome, CaseRuns, Checker, floating_dtypes
from pytest_probe.check.call_again import Call
from pytest_probe.check.comparisons import comparisons
from pytest_probe.check.judging import argument_rows
from pytest_probe.errors import DeviceRaised, HookFailed, NoReference, RecordError, UnknownAPI, Unsupported
from pytest_probe.features.self_check.kernels import kernels_as_reference
from pytest_probe.features.self_check.no_jumps import steps
from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import OVERFLOW, PASS_SELF, SEVERITY, UNDECIDED, OutputVerdict, Verdict, conclusion
from pytest_probe.numerics.dtypes import float_format, is_complex, numpy_dtype
from pytest_probe.options import SELF
from pytest_probe.standards.finite import Finite
from pytest_probe.standards.noise import stages
from pytest_probe.standards.noise.explanation import STAGES, may_round_between
from pytest_probe.standards.noise.standard import NoiseStandard
from pytest_probe.system.machine import out_of_memory
from pytest_probe.user_errors import first_line

NO_QUESTION = "no question"
_IN_WORDS = "float64 on the CPU"
_BETWEEN = "rounding to 16 bit between its steps explains it"
_INSIDE = "rounding to 16 bit inside explains it, and nothing tells where the kernel rounds"


class Asked(Struct, frozen=True):
    """A case compared with the reference of a question; of is what that is, in words."""

    name: str
    of: str
    checked: CaseOutcome

    @property
    def verdict(self) -> Verdict:
        return self.checked.verdict

    def outputs(self) -> Iterator[OutputVerdict]:
        if not self.verdict.outputs:
            outcome, reason = self.verdict.verdict, self.verdict.reason
            if outcome == "skip":
                reason = _line(reason.replace(_IN_WORDS, self.of)) or reason
            yield OutputVerdict(self.name, (), "", outcome, SELF, reason)
        for output in self.verdict.outputs:
            yield replace(output, name=f"{self.name}.{output.name}", baseline={})


class SelfChecks:
    """Asks questions of cases, by their names. What a question leaves serves the record's other direction."""

    def __init__(self, checker: Checker, names: Sequence[str]) -> None:
        self._checker, self._names = checker, names
        self._runs: dict[str, CaseRuns] = {}

    def of(self, case: Case) -> CaseOutcome:
        """The case with a verdict on each question that it can be asked."""
        try:
            dtype = _wider(case)
        except RecordError as error:
            return CaseOutcome(case, Verdict("skip", SELF, str(error), error.kind))
        for runs in self._runs.values():
            runs.release(case)
        asked = list(self._asked(case, dtype))
        outputs = [output for each in asked if each.name in self._names for output in self._outputs(each)]
        if "no-jumps" in self._names and dtype:
            outputs.append(self._smooth(case, asked))
        if "finite" in self._names:
            outputs += [output for each in asked for output in self._finite(each)]
        return self._concluded(case, asked, tuple(outputs))

    def asks(self, case: Case) -> list[str]:
        """The questions that the case can be asked."""
        verdict = self.of(case).verdict
        found = {output.name.partition(".")[0] for output in verdict.outputs if output.verdict != "skip"}
        return [name for name in self._names if name in found]

    def _asked(self, case: Case, dtype: str) -> Iterator[Asked]:
        """The case compared with each reference; smooth alone takes one that tells whether the function jumps by
        itself."""
        names, questions = set(self._names), ["wider-dtype", "cpu"]
        alone = names == {"no-jumps"}
        if alone and self._checker.engines_of(case.dump.framework).device_name != "cpu":
            questions.reverse()
        for name in questions:
            found = None
            if names.isdisjoint((name, "no-jumps", "finite")):
                continue
            if name == "cpu":
                found = self._of_cpu(case, dtype)
            elif dtype and dtype != "none":
                found = Asked("wider-dtype", f"{dtype} on the device", self._beside(dtype, case, dtype))
            if found is not None:
                yield found
                if alone and found.checked.worst is not None:
                    return

    def _of_cpu(self, case: Case, dtype: str) -> Asked | None:
        """By the CPU in float64, else in float32; None where that is the device's own kernel, or wider's."""
        on_cpu = self._checker.engines_of(case.dump.framework).device_name == "cpu"
        if on_cpu and dtype != "float32":
            return None
        found = self._run("cpu", case)
        if found.verdict.verdict == "skip" and found.verdict.kind == NoReference.kind and not on_cpu:
            single = self._beside("cpu float32", case, "float32", on_host=True)
            if single.verdict.verdict != "skip":
                return Asked("cpu", "float32 on the CPU", single)
        return Asked("cpu", _IN_WORDS, found)

    def _beside(self, key: str, case: Case, dtype: str, *, on_host: bool = False) -> CaseOutcome:
        if key not in self._runs:
            registry, engines = self._checker.registry, self._checker.engines_of(case.dump.framework)
            # What the project put in the place of an API is the kernel whose other dtypes are asked.
            calls = {} if on_host else registry.calls
            alone = dict(calls)
            for api in calls:
                namespace, _, name = api.rpartition(".")
                # Without those of which the framework, or a namespace of the project's, has a function.
                with suppress(UnknownAPI):
                    if engines.framework.candidates(namespace, name, registry.namespaces):
                        del alone[api]
            kernels = kernels_as_reference(dtype, calls, on_host=on_host)
            asked = self._checker.changed(
                replace(registry, references=alone), keeps_sides=True, reference_by=kernels, cache=None
            )
            self._runs[key] = CaseRuns(asked)
        return self._run(key, case)

    def _run(self, key: str, case: Case) -> CaseOutcome:
        if key not in self._runs:
            self._runs[key] = CaseRuns(self._checker.changed(keeps_sides=True))
        return self._runs[key].run(case)

    def _smooth(self, case: Case, asked: Sequence[Asked]) -> OutputVerdict:
        """The CPU, where it has the function, tells whether that jumps by itself."""
        found = [each for each in asked if each.checked.worst is not None]
        on_cpu = self._checker.engines_of(case.dump.framework).device_name == "cpu"
        beside = next((each.checked for each in found if each.name == "cpu" or on_cpu), None)
        checked = beside or next((each.checked for each in found), None) or self._beside("itself", case, "")
        if checked.worst is None:
            return OutputVerdict("no-jumps", (), "", "skip", SELF, _line(checked.verdict.reason))
        try:
            with self._checker.making_calls(case) as engines:
                return steps(Call(checked, engines), self._checker.request.seed, has_reference=beside is not None)
        except MemoryError as error:
            return OutputVerdict("no-jumps", (), "", "skip", SELF, str(out_of_memory(error)))
        except (DeviceRaised, HookFailed, Unsupported) as error:
            return OutputVerdict("no-jumps", (), "", "skip", SELF, first_line(error))

    def _outputs(self, asked: Asked) -> Iterator[OutputVerdict]:
        """An error that rounding to 16 bit between steps, or inside a kernel, explains is undecided."""
        outputs = list(asked.outputs())
        wrong = {each.name for each in outputs if each.verdict == "error" and each.standard == NoiseStandard.name}
        compared = ((f"{asked.name}.{each.name}", each) for each in self._comparisons(asked) if wrong)
        rounding = {name: _rounding_explains(each) for name, each in compared if name in wrong}
        for each in outputs:
            if words := rounding.get(each.name):
                reason = f"{UNDECIDED}{words}: {each.reason}"
                each = replace(each, verdict="warning", reason=reason, diagnosis=None)
            yield each

    def _comparisons(self, asked: Asked) -> Iterator[Comparison]:
        compared, case = asked.checked.compared, asked.checked.case
        for sides in () if compared is None else compared.sides:
            found = comparisons(sides, case.direction, self._checker.request.seed, by_class=True)
            yield from (each for each in found if isinstance(each, Comparison))

    def _finite(self, asked: Asked) -> Iterator[OutputVerdict]:
        """Where the device has inf or NaN in the place of the reference's number, from arguments that are numbers."""
        for each in self._comparisons(asked):
            try:
                found = Finite().judge(each)
            except Unsupported:
                continue
            wrong = found.metrics.get(OVERFLOW) == "abnormal"
            reason = f"compared with {asked.of}: {found.reason}" if wrong else ""
            kept = found if wrong else replace(found, verdict="pass", worst=())
            yield replace(kept, name=f"finite.{asked.name}.{each.name}", reason=reason)

    def _concluded(self, case: Case, asked: Sequence[Asked], outputs: tuple[OutputVerdict, ...]) -> CaseOutcome:
        chosen = max(asked, key=lambda each: SEVERITY[each.verdict.verdict], default=None)
        names = dict.fromkeys(output.name.partition(".")[0] for output in outputs if output.verdict != "skip")
        if not names:
            # What is wrong with its record, or a device that refuses the call, says more than each question.
            for each in asked:
                if each.verdict.verdict == "skip" and each.verdict.kind != NoReference.kind:
                    return CaseOutcome(case, replace(each.verdict, standard=SELF))
            why = "; ".join(f"{output.name}: {output.reason}" for output in outputs if output.reason)
            why = why or "no dtype is wider, and the CPU is the device"
            return CaseOutcome(case, Verdict("skip", SELF, why, NO_QUESTION))
        outcome, reason = conclusion(outputs)
        if outcome == "pass":
            outcome, reason = PASS_SELF, f"asked: {', '.join(names)}"
        checked = CaseOutcome(case, Verdict(outcome, SELF, reason)) if chosen is None else chosen.checked
        replay = None if checked.worst is None else checked.worst.replay
        rows = argument_rows(replay) if replay is not None and SEVERITY[outcome] > SEVERITY["pass"] else ()
        notes = tuple(dict.fromkeys(note for each in asked for note in each.verdict.notes))
        found = replace(
            checked.verdict,
            verdict=outcome,
            standard=SELF,
            reason=reason,
            kind="",
            outputs=outputs,
            arguments=rows,
            notes=notes,
        )
        return replace(checked, verdict=found)


def _rounding_explains(comparison: Comparison) -> str:
    """Where rounding to the case's 16-bit dtype explains an output, in words; "" where it does not. Runs of a Python
    function show its steps; of another kernel, of which no run does, a roundoff of that dtype stands for them."""
    evidence = comparison.evidence
    if not may_round_between(comparison):
        return ""
    runs, limits = evidence.perturbed(STAGES[-1]), stages.limits_of(comparison)
    if evidence.narrow_steps(1):
        if stages.rounds_inside(comparison):
            stage = stages.inside_kernel(comparison, runs, limits)
        else:
            stage = stages.between_steps(comparison, runs)
        return _BETWEEN if stage.within_limits else ""
    return _INSIDE if stages.inside_kernel(comparison, runs, limits).within_limits else ""


def _wider(case: Case) -> str:
    """The dtype that is wider than those of a call's floating tensors, "none" where no dtype is, "" without any. Raises
    RecordError."""
    if case.pair is not None:
        names = {dtype.name for dtype in case.pair.arguments.dtypes.values()}
    else:
        call = case.dump.decode(case.record)
        names = set(floating_dtypes(call))
        # An autocast shows in what the call gave.
        if names:
            names = {case.dtype} if case.dtype else names | {spec.dtype for spec in call.output_specs()}
    digits = []
    for dtype in map(numpy_dtype, names):
        if is_complex(dtype):
            digits.append(24 if dtype.itemsize == 8 else 53)
        elif dtype.kind in "fcV":
            digits.append(float_format(dtype).precision)
    if not digits:
        return ""
    return "float32" if min(digits) < 24 else "float64" if min(digits) < 53 else "none"


def _line(text: str) -> str:
    return next(iter(text.splitlines()), "")
