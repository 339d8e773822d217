"""One case on one device: run both sides, ask the standard, and say what was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pytest_probe import inputs
from pytest_probe.errors import DeviceRaised, HookFailed, NoKernel, RecordError, Unsupported
from pytest_probe.execution import hooked
from pytest_probe.execution.case import DIRECTIONS, Case, Pair
from pytest_probe.execution.conditions import Conditions
from pytest_probe.execution.likeness import first_line
from pytest_probe.execution.questions import questions
from pytest_probe.execution.repeats import Repeats
from pytest_probe.execution.replay import NO_CALL, Replay
from pytest_probe.execution.runner import AdjustInputs, Runner
from pytest_probe.execution.sampled import placed
from pytest_probe.execution.sides import Looks, Sides
from pytest_probe.execution.summary import summed
from pytest_probe.frameworks.base import Bound, Way
from pytest_probe.inputs import Arguments
from pytest_probe.records.model import Direction, Dump, Record
from pytest_probe.registry import Registry
from pytest_probe.standards.facts import facts
from pytest_probe.standards.modal import judged_with_modes
from pytest_probe.standards.peer_measures import measures
from pytest_probe.standards.question import Question, Standard
from pytest_probe.standards.verdict import SEVERITY, OutputVerdict, Verdict

# How reading the arguments of one function as those of another ends.
UNREADABLE = (TypeError, ValueError, LookupError, AttributeError)

AdjustVerdict = Callable[[Case, Verdict], Verdict | None]


@dataclass(frozen=True, slots=True)
class Lent:
    """A record's arguments on the device, for a call that a test makes: tensors of its own, which it may write to."""

    case: Case
    replay: Replay
    bound: Bound


class Checker:
    """Checks cases on one device, those of one record one after the other sharing its runs, until `release`.

    cause is the error of the function, or of the reference, that the last verdict speaks of.
    """

    def __init__(
        self,
        conditions: Conditions,
        registry: Registry,
        *,
        adjust_inputs: AdjustInputs | None = None,
        adjust_verdict: AdjustVerdict | None = None,
    ) -> None:
        self.conditions = conditions
        self.registry = registry
        self.adjust_verdict = adjust_verdict
        self.runner = Runner(conditions, registry, adjust_inputs)
        self._last: Sides | None = None
        self.cause: BaseException | None = None

    def release(self) -> None:
        """Forget the run kept for the sibling item, and its memory."""
        self.runner.release()
        self._last = self.cause = None

    def check(self, case: Case) -> Verdict:
        """The verdict on a case. What is wrong with a record, a file or a call ends in a skip or an error verdict."""
        self.cause = None
        try:
            verdict = self._check(case)
        except (Unsupported, RecordError, DeviceRaised, HookFailed) as error:
            verdict = self._undecided(case, error)
        try:
            adjusted = self.adjust_verdict(case, verdict) if self.adjust_verdict is not None else None
        except HookFailed as error:
            return self._undecided(case, error)
        return verdict if adjusted is None else adjusted

    def _undecided(self, case: Case, error: Exception) -> Verdict:
        """The verdict where an error stands in the way of one."""
        self.cause = error.__cause__
        if isinstance(error, (DeviceRaised, HookFailed)):
            return Verdict("error", self.conditions.standard, str(error))
        if isinstance(error, Unsupported):
            return Verdict("skip", self.conditions.standard, _located(case, error), error.kind)
        kind = error.kind if isinstance(error, RecordError) else RecordError.kind
        return Verdict("skip", self.conditions.standard, str(error), kind)

    def compare(
        self,
        function: Callable[..., Any],
        reference: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        api: str = "",
        backward: bool = False,
        key: str = "",
    ) -> tuple[Verdict, ...]:
        """The verdict on a function's outputs, and with `backward` one on the gradients of all its floating arguments.

        function runs on the device, on copies of args and kwargs (the framework's tensors, in lists, tuples and dicts
        or not, and anything else), reference on the CPU on the same values with every floating tensor as float64. api
        ("Functional.softmax") says whose judge decides, the noise standard without; key is what incoming gradients are
        drawn for. An exception of either function ends in a verdict; `cause` holds it until the next check.
        """
        pairs = self.pairs(function, reference, args, kwargs, api=api, backward=backward, key=key)
        verdicts = tuple(self.check(case) for case in pairs)
        self.runner.release()
        return verdicts

    def pairs(
        self,
        function: Callable[..., Any],
        reference: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        api: str = "",
        backward: bool = False,
        key: str = "",
        origin: str = "",
    ) -> tuple[Case, ...]:
        """The cases that `compare` checks: forward, and backward where it is asked for. origin says whose they are in
        place of a dump's path. Raises Unsupported for an argument that cannot be taken (a sparse tensor)."""
        framework, device = self.runner.framework, self.runner.device
        taken = [framework.take(value, device) for value in args]
        named = {name: framework.take(value, device) for name, value in (kwargs or {}).items()}
        pair = Pair(function, reference, Arguments(tuple(taken), named, None), backward)
        namespace, _, name = api.rpartition(".")
        record = Record(key or getattr(function, "__name__", "function"), namespace, name, 0, b"", b"")
        dump = Dump(Path(origin), framework.name, "", "", (record,), lambda _: NO_CALL, lambda _: ())
        return tuple(
            Case(dump, record, direction, None, pair) for direction in DIRECTIONS if backward or direction == "forward"
        )

    def lend(self, case: Case, *, gradient: bool) -> Lent | Verdict:
        """The case's arguments on the device, for a caller who makes the call; `judge` takes what it returns. The
        verdict, a skip, where they cannot be had.

        gradient: floating tensors require grad.
        """
        made = self.runner.made(case, "test")
        if isinstance(made, Exception):
            return self._undecided(case, made)
        arguments, wanted = made.candidate.arguments, made.wanted if gradient else None
        way = Way(self.runner.device)
        return Lent(case, made, self.runner.framework.bind(arguments.args, arguments.kwargs, way, wanted))

    def judge(self, lent: Lent, result: Any, direction: Direction = "forward") -> Verdict:
        """The verdict on what a call on lent arguments returned: the framework's tensor, or several in a list, tuple
        or dict. The backward takes its gradients; once."""
        made: Replay | Exception = lent.replay
        try:
            lent.replay.actual = self.runner.framework.left(lent.bound, result)
        except Unsupported as error:
            made = error
        case = replace(lent.case, direction=direction)
        self.runner.keep(case, made)
        return self.check(case)

    def save(self, path: Path) -> None:
        """Write the last case's inputs, outputs and gradients of both sides. Raises OSError."""
        if self._last is None:
            return
        last = self._last
        arrays = {name: leaf.array for name, leaf in last.replay.leaves.items()}
        for side, values in (("seed", last.replay.seeds), ("actual", last.actual), ("expected", last.expected)):
            arrays |= {f"{side}.{name}": value for name, value in values.items() if isinstance(value, np.ndarray)}
        self.runner.framework.save(path, arrays)

    def _check(self, case: Case) -> Verdict:
        if not self.runner.keeps(case):
            self.release()
        looks = self.runner.looks(case, self.runner.replay(case))
        if self._repeats(case, looks.replay) > 1:
            return self._repeated(case, looks)
        return summed(self.conditions.standard, self._outputs(case, looks), looks.replay)

    def _outputs(self, case: Case, looks: Looks) -> tuple[OutputVerdict, ...]:
        """The verdict on each output. The sides of the worst are kept, to be saved."""
        judged = [(sides, self._judged(case, sides)) for sides in looks.sides]
        worst = max(judged, key=lambda item: max((SEVERITY[output.verdict] for output in item[1]), default=-1))
        self._last = worst[0]
        return tuple(output for _, outputs in judged for output in outputs)

    def _judged(self, case: Case, sides: Sides) -> tuple[OutputVerdict, ...]:
        try:
            judged = self._by_rule(case.api, case, sides)
        except UNREADABLE as error:
            if case.pair is None:
                raise
            why = f"judged by noise, since the rule of {case.api} cannot read these arguments ({first_line(error)})"
            judged = tuple(_told(verdict, why) for verdict in self._by_rule("", case, sides))
        if sides.sample is not None:
            judged = tuple(placed(item, sides.sample) for item in judged)
        return (*sides.structural, *judged)

    def _by_rule(self, api: str, case: Case, sides: Sides) -> tuple[OutputVerdict, ...]:
        """The verdicts of the rule that an API has."""
        judge = hooked.standard(self.registry.standards[self.conditions.standard])
        asked = questions(api, case.direction, sides.replay, sides.actual, sides.expected, self.conditions.seed)
        return tuple(item if isinstance(item, OutputVerdict) else self._output(judge, item) for item in asked)

    def _output(self, judge: Standard, question: Question) -> OutputVerdict:
        verdict = judged_with_modes(judge, question, self.runner.modes)
        if not self.conditions.measured:
            return verdict
        return replace(verdict, measures=measures(question, self.conditions.standard))

    def _repeats(self, case: Case, replay: Replay) -> int:
        """How often the device runs: what draws random numbers, or leaves memory as it was, is made to differ."""
        differs = not facts(case.api).classes.isdisjoint(("random", "uninitialised"))
        return 1 if differs or replay.origin != "run" else self.conditions.repeat

    def _repeated(self, case: Case, looks: Looks) -> Verdict:
        """The worst verdict on each output of several runs, with how far they lie apart."""
        repeats = Repeats()
        last: Sides | None = None
        for number in range(self.conditions.repeat):
            looks = self.runner.again(case, looks) if number else looks
            if repeats.add(looks.actual) and repeats.judged(self._outputs(case, looks)):
                last = self._last
        self._last = last
        verdict = summed(self.conditions.standard, repeats.outputs(), looks.replay)
        return replace(verdict, notes=(*verdict.notes, *repeats.notes()))


def _told(verdict: OutputVerdict, why: str) -> OutputVerdict:
    return verdict if verdict.verdict == "pass" else replace(verdict, reason=f"{verdict.reason}; {why}")


def _located(case: Case, error: Unsupported) -> str:
    """A skip's reason with its file and record, as a RecordError has them. What a device has no kernel for is said
    alike for all records, so that pytest shows it once."""
    if isinstance(error, NoKernel) or case.pair is not None:
        return str(error)
    return f"{case.dump.path}: {case.id}: {error}"


def preview(case: Case, registry: Registry, conditions: Conditions | None = None) -> Verdict | None:
    """The skip that is known without running the case; None where it would run."""
    runner = Runner(conditions or Conditions(device="cpu"), registry)
    try:
        framework = runner.framework
        call = case.dump.decode(case.record)
        inputs.check_size(call, case.dtype, inputs.available_memory())
        if case.api not in registry.references or case.api not in registry.calls:
            framework.candidates(case.record.namespace, case.record.api, registry.namespaces)
    except (Unsupported, RecordError) as error:
        return Verdict("skip", runner.conditions.standard, str(error), error.kind)
    return None
