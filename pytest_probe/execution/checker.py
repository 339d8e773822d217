"""One case on one device: both sides run, the standard judges each output, and what was found is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_probe import frameworks, inputs
from pytest_probe.core.arguments import Arguments
from pytest_probe.core.case import DIRECTIONS, Case, Pair
from pytest_probe.core.comparison import Comparison
from pytest_probe.core.dump import Call, Direction, Dump, Lost, Record, leaves
from pytest_probe.core.run import Way
from pytest_probe.core.verdict import SEVERITY, OutputVerdict, Verdict
from pytest_probe.errors import DeviceRaised, HookFailed, NoKernel, ProbeError, RecordError, UnknownAPI, Unsupported
from pytest_probe.execution import user_code
from pytest_probe.execution.autocast import possible_autocast
from pytest_probe.execution.comparisons import comparisons
from pytest_probe.execution.conditions import Conditions, Setup
from pytest_probe.execution.determinism import Repeats
from pytest_probe.execution.gradients import gradient_sides, with_incoming
from pytest_probe.execution.large.compare import compared_in_samples, placed
from pytest_probe.execution.large.sampler import Sampler
from pytest_probe.execution.memory import out_of_memory
from pytest_probe.execution.replay import NO_CALL, Reference, Replay
from pytest_probe.execution.resolve import Resolver
from pytest_probe.execution.run import CallerResult, DeviceSource, replayed, run_on_device, settled_on_cpu
from pytest_probe.execution.stored_outputs import StoredOutputs, check_gradients, check_stored
from pytest_probe.execution.structure import (
    Compared,
    Sides,
    backward_sides,
    forward_sides,
    named_gradients,
    nearest_structure,
)
from pytest_probe.execution.verdicts import verdict_on
from pytest_probe.inputs import StoredTensors
from pytest_probe.standards.api_class import classes_of
from pytest_probe.standards.base import Standard
from pytest_probe.standards.device_modes.judge import judged_with_modes
from pytest_probe.standards.tools.columns import measures
from pytest_probe.user_errors import ends_run, first_line, noting_interrupts, raised

if TYPE_CHECKING:
    from pytest_probe.frameworks.base import Bound
    from pytest_probe.registry import Registry

# How reading the arguments of one function as those of another ends.
UNREADABLE = (TypeError, ValueError, LookupError, AttributeError)

AdjustInputs = Callable[[Case, Arguments], Arguments | None]
AdjustVerdict = Callable[[Case, Verdict], Verdict | None]


@dataclass(frozen=True, slots=True)
class Checked:
    """What checking a case leaves, for whoever keeps it until the next case.

    forward is the run of the record that its backward case shares, or why there is none; None where it is used up.
    worst holds both sides of the worst output, which `save` writes; cause is the error of the function, or of the
    reference, that the verdict speaks of.
    """

    case: Case
    verdict: Verdict
    forward: Replay | ProbeError | None = None
    worst: Sides | None = None
    cause: BaseException | None = None

    def serves(self, case: Case) -> bool:
        """Is the run that it keeps that of another case, too: the same record in the same dtype, the other direction?

        A case that is run again shall run.
        """
        own = self.case
        same = own.dump is case.dump and own.record.name == case.record.name and own.dtype == case.dtype
        return same and own.direction != case.direction and self.forward is not None

    def save(self, path: Path) -> None:
        """Write inputs, outputs and gradients of both sides. Raises OSError."""
        if self.worst is None:
            return
        replay = self.worst.replay
        arrays = {name: leaf.array for name, leaf in replay.reference.leaves.items()}
        sides = (("seed", replay.incoming), ("actual", self.worst.actual), ("expected", self.worst.expected))
        for side, values in sides:
            arrays |= {f"{side}.{name}": value for name, value in values.items() if isinstance(value, np.ndarray)}
        framework = replay.reference.framework
        with framework.fixed_state():
            framework.save(path, arrays)


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A record's arguments on the device, for a call that a test makes: tensors of its own, which it may write to."""

    case: Case
    reference: Reference
    bound: Bound


class Checker:
    """Checks cases on one device. It keeps nothing of a case: what its sibling may use is in `Checked`."""

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
        self.setup = Setup(conditions, registry)
        self._adjust_inputs = adjust_inputs
        self._adjust_verdict = adjust_verdict

    def check(self, case: Case) -> Verdict:
        """The verdict on a case. What is wrong with a record, a file or a call ends in a skip or an error verdict."""
        return self.run(case).verdict

    def run(self, case: Case, previous: Checked | None = None) -> Checked:
        """The verdict on a case, and what it leaves. previous: what the case before left, whose forward run is used
        where it is of the same record."""
        kept = previous.forward if previous is not None and previous.serves(case) else None
        return self._checked(case, partial(self._judged, case, kept))

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
        drawn for. An exception of either function ends in a verdict.
        """
        previous: Checked | None = None
        verdicts = []
        for case in self.pairs(function, reference, args, kwargs, api=api, backward=backward, key=key):
            previous = self.run(case, previous)
            verdicts.append(previous.verdict)
        return tuple(verdicts)

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
        framework, device = self.setup.framework, self.setup.device
        with self.setup.settled():
            taken = [framework.take(value, device) for value in args]
            named = {name: framework.take(value, device) for name, value in (kwargs or {}).items()}
        pair = Pair(function, reference, Arguments(tuple(taken), named, None), backward)
        namespace, _, name = api.rpartition(".")
        record = Record(key or getattr(function, "__name__", "function"), namespace, name, 0, b"", b"")
        dump = Dump(Path(origin), framework.name, "", "", (record,), lambda _: NO_CALL, lambda _: ())
        return tuple(
            Case(dump, record, direction, None, pair) for direction in DIRECTIONS if backward or direction == "forward"
        )

    def prepare(self, case: Case, *, gradient: bool) -> PreparedCall | Checked:
        """The case's arguments on the device, for a caller who makes the call; `judge` takes what it returns. The
        skip where they cannot be had.

        gradient: floating tensors require grad.
        """
        try:
            with noting_interrupts(), self.setup.settled(), _ended(case):
                return self._prepared(case, gradient)
        except (Unsupported, RecordError, DeviceRaised, HookFailed) as error:
            return self._undecided(case, error)
        except MemoryError as error:
            return self._undecided(case, out_of_memory(error))

    def _prepared(self, case: Case, gradient: bool) -> PreparedCall:
        reference, autocast = self._reference(case, case.dump.decode(case.record))
        reference = settled_on_cpu(reference, autocast)
        arguments = reference.candidate.arguments
        wanted, way = reference.wanted if gradient else None, Way(self.setup.device, state="users")
        bound = self.setup.framework.bind(arguments.args, arguments.kwargs, way, wanted)
        return PreparedCall(case, reference, bound)

    def judge(self, prepared: PreparedCall, result: Any, direction: Direction = "forward") -> Checked:
        """The verdict on what a call on prepared arguments returned: a tensor, or several in a list, tuple or dict.
        The backward takes its gradients; once."""
        case = replace(prepared.case, direction=direction)
        source = CallerResult(self._device, prepared.bound, result)
        return self._checked(case, lambda: self._verdict(case, replayed(prepared.reference, source)))

    def _checked(self, case: Case, judged: Callable[[], Checked]) -> Checked:
        """What `judged` gives, or the verdict where an error stands in the way of one; adjusted by the project."""
        with noting_interrupts():
            return self._adjusted(case, self._found(case, judged))

    def _found(self, case: Case, judged: Callable[[], Checked]) -> Checked:
        try:
            with self.setup.settled(), _ended(case):
                return judged()
        except (Unsupported, RecordError, DeviceRaised, HookFailed) as error:
            return self._undecided(case, error)
        except MemoryError as error:
            return self._undecided(case, out_of_memory(error))

    def _adjusted(self, case: Case, found: Checked) -> Checked:
        try:
            adjusted = self._adjust_verdict(case, found.verdict) if self._adjust_verdict is not None else None
        except HookFailed as error:
            return replace(found, verdict=self._undecided(case, error).verdict, cause=error.__cause__)
        except MemoryError as error:
            return replace(found, verdict=self._undecided(case, out_of_memory(error)).verdict)
        return found if adjusted is None else replace(found, verdict=adjusted)

    def _undecided(self, case: Case, error: Exception) -> Checked:
        standard = self.conditions.standard
        if isinstance(error, (DeviceRaised, HookFailed)):
            verdict = Verdict("error", standard, str(error))
        elif isinstance(error, Unsupported):
            verdict = Verdict("skip", standard, _located(case, error), error.kind)
        else:
            kind = error.kind if isinstance(error, RecordError) else RecordError.kind
            verdict = Verdict("skip", standard, str(error), kind)
        return Checked(case, verdict, cause=error.__cause__)

    def _judged(self, case: Case, kept: Replay | ProbeError | None) -> Checked:
        if self.conditions.judges_stored and case.direction == "backward":
            check_gradients(case.dump.decode(case.record))
        if kept is None:
            try:
                kept = self._replay(case)
            except (Unsupported, RecordError, DeviceRaised, HookFailed) as error:
                kept = error
            except MemoryError as error:
                kept = out_of_memory(error)
        # The backward of a record whose forward could not run is undecided for the same reason, without another try.
        if isinstance(kept, ProbeError):
            return replace(self._undecided(case, kept), forward=kept)
        return self._verdict(case, kept)

    def _replay(self, case: Case) -> Replay:
        """The case's run. Raises Unsupported, RecordError, DeviceRaised or HookFailed."""
        if case.pair is not None:
            return replayed(self._pair(case, case.pair), self._device)
        call = case.dump.decode(case.record)
        if not self.conditions.judges_stored:
            with _naming_lost_arguments(call):
                reference, autocast = self._reference(case, call)
                return run_on_device(reference, autocast, self._device, as_recorded=case.dtype is None)
        check_stored(call)
        with _naming_lost_arguments(call):
            reference, autocast = self._reference(case, call)
            reference = settled_on_cpu(reference, autocast)
        return replayed(reference, StoredOutputs(case.record, call, self._files(case.dump)))

    @property
    def _device(self) -> DeviceSource:
        return DeviceSource(self.setup.framework, self.setup.device)

    @property
    def _resolver(self) -> Resolver:
        registry = self.registry
        return Resolver(
            self.setup.framework,
            registry.calls,
            registry.references,
            registry.namespaces,
            self.setup.reference,
            self.conditions.flops,
            self._memory,
        )

    @property
    def _memory(self) -> int:
        """Bytes that may be taken."""
        return inputs.available_memory(self.conditions.workers)

    def _reference(self, case: Case, call: Call) -> tuple[Reference, str]:
        """The reference of a record's call, and the dtype of an autocast that it may have run under."""
        arguments = self._arguments(case, call)
        as_recorded = case.dtype is None
        device = self.setup.device
        autocast = possible_autocast(call, arguments, device.name) if as_recorded else ""
        check_dtypes = as_recorded and not autocast
        reference = self._resolver.record(case.record, call, arguments, device, check_dtypes=check_dtypes)
        return reference, autocast

    def _pair(self, case: Case, pair: Pair) -> Reference:
        return self._resolver.pair(pair, case.api if case.record.api else "", case.record.name)

    def _files(self, dump: Dump) -> StoredTensors:
        return StoredTensors(dump.path, dump.data_dirs, self.setup.framework.load, dump.anywhere)

    def _arguments(self, case: Case, call: Call) -> Arguments:
        inputs.check_size(call, case.dtype, self._memory)
        inputs.check_device_size(call, case.dtype, self.setup.device_memory)
        arguments = inputs.build(
            call,
            bound=frameworks.signatures(case.dump.framework).bind(case.api, call.args, call.kwargs),
            record=case.record.name,
            dtype=case.dtype,
            seed=self.conditions.seed,
            kind=self.conditions.inputs,
            files=self._files(case.dump),
        )
        adjusted = self._adjust_inputs(case, arguments) if self._adjust_inputs is not None else None
        return arguments if adjusted is None else adjusted

    def _verdict(self, case: Case, replay: Replay) -> Checked:
        """The verdict on a case whose record ran. A graph gives its gradients once: the backward leaves no run."""
        compared = self._compared(case, replay)
        # The run serves the backward, which uses up its graph.
        kept = replay if case.direction == "forward" else None
        if self._runs(case, replay) > 1:
            return replace(self._repeated(case, compared), forward=kept)
        outputs, worst = self._outputs(case, compared)
        return Checked(case, verdict_on(compared.replay, self.conditions.standard, outputs), kept, worst)

    def _compared(self, case: Case, replay: Replay) -> Compared:
        """Both sides in the case's direction."""
        contraction = replay.reference.contraction
        if case.direction == "backward" and not replay.incoming:
            replay = with_incoming(case, replay, self.conditions.seed)
        if contraction is not None:
            actual: Mapping[str, Any] = replay.actual.outputs
            if case.direction == "backward":
                actual = replay.source.gradients(replay)
            conditions, key = self.conditions, case.record.name
            sampler = Sampler(replay, contraction, conditions.flops, case.direction, key, conditions.seed)
            return compared_in_samples(sampler, actual)
        if case.direction == "forward":
            return Compared.whole(nearest_structure([forward_sides(reading) for reading in replay.readings()]))
        return Compared.whole(nearest_structure(gradient_sides(replay)))

    def _outputs(self, case: Case, compared: Compared) -> tuple[tuple[OutputVerdict, ...], Sides]:
        """The verdict on each output, and both sides of the worst."""
        judged = [(sides, self._by_sides(case, sides)) for sides in compared.sides]
        # -1: nothing at all was judged on that side.
        worst = max(judged, key=lambda item: max((SEVERITY[output.verdict] for output in item[1]), default=-1))
        return tuple(output for _, outputs in judged for output in outputs), worst[0]

    def _by_sides(self, case: Case, sides: Sides) -> tuple[OutputVerdict, ...]:
        try:
            judged = self._by_rule(case, sides, by_class=True)
        except UNREADABLE as error:
            # Of a recorded API the arguments are known: what cannot be read is a fault of ours. A test's function may
            # have others.
            if case.pair is None:
                raise
            why = f"judged by noise, since the rule of {case.api} cannot read these arguments ({first_line(error)})"
            judged = tuple(_with_reason(verdict, why) for verdict in self._by_rule(case, sides, by_class=False))
        if sides.sample is not None:
            judged = tuple(placed(item, sides.sample) for item in judged)
        return (*sides.structural, *judged)

    def _by_rule(self, case: Case, sides: Sides, *, by_class: bool) -> tuple[OutputVerdict, ...]:
        """The verdicts of the rule that an API has."""
        standard = user_code.standard(self.registry.standards[self.conditions.standard])
        asked = comparisons(sides, case.direction, self.conditions.seed, by_class=by_class)
        return tuple(item if isinstance(item, OutputVerdict) else self._output(standard, item) for item in asked)

    def _output(self, standard: Standard, comparison: Comparison) -> OutputVerdict:
        verdict = judged_with_modes(standard, comparison, self.setup.modes)
        if not self.conditions.measured:
            return verdict
        return replace(verdict, measures=measures(comparison, self.conditions.standard))

    def _runs(self, case: Case, replay: Replay) -> int:
        """How often the device runs: what draws random numbers, or leaves memory as it was, is made to differ."""
        differs = not classes_of(replay.reference.candidate.name).isdisjoint(("random", "uninitialised"))
        return 1 if differs or not replay.source.runs_again else self.conditions.repeat

    def _repeated(self, case: Case, compared: Compared) -> Checked:
        """The worst verdict on each output of several runs, with how far they lie apart."""
        repeats = Repeats()
        worst: Sides | None = None
        for number in range(self.conditions.repeat):
            compared = self._again(case, compared) if number else compared
            # A run that is like another, bit for bit, has its verdict.
            if repeats.add(compared.actual):
                outputs, sides = self._outputs(case, compared)
                worst = sides if repeats.judged(outputs) else worst
        verdict = verdict_on(compared.replay, self.conditions.standard, repeats.outputs())
        return Checked(case, replace(verdict, notes=(*verdict.notes, *repeats.notes())), worst=worst)

    def _again(self, case: Case, compared: Compared) -> Compared:
        """Both sides of another run of the device, beside the same reference."""
        replay = compared.replay
        replay = replace(replay, actual=replay.source.forward(replay.reference))
        if replay.reference.contraction is not None:
            return self._compared(case, replay)
        if case.direction == "forward":
            return Compared.whole(forward_sides(replay))
        actual = named_gradients(replay.source.gradients(replay))
        return Compared.whole(backward_sides(replay, actual, compared.sides[0].expected))


@contextmanager
def _ended(case: Case) -> Iterator[None]:
    """Raises HookFailed for what no call should end with, as SystemExit: functions of the user's run as references,
    too, and a time limit strikes anywhere."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception) or ends_run(error):
            raise
        raise HookFailed(raised(f"the check of {case.record.name}", error)) from error


def _with_reason(verdict: OutputVerdict, why: str) -> OutputVerdict:
    return verdict if verdict.verdict == "pass" else replace(verdict, reason=f"{verdict.reason}; {why}")


def _located(case: Case, error: Unsupported) -> str:
    """A skip's reason with its file and record, as a RecordError has them. What a device has no kernel for is said
    alike for all records, so that pytest shows it once."""
    if isinstance(error, NoKernel) or case.pair is not None:
        return str(error)
    return f"{case.dump.path}: {case.id}: {error}"


@contextmanager
def _naming_lost_arguments(call: Call) -> Iterator[None]:
    """Where the dump lost an argument and the call does not work out, that is the reason."""
    try:
        yield
    except Unsupported as error:
        trees = (("input_args", call.args), ("input_kwargs", call.kwargs))
        lost = [path for root, tree in trees for path, value in leaves(tree, root) if isinstance(value, Lost)]
        # These have nothing to do with the arguments.
        if not lost or isinstance(error, (UnknownAPI, NoKernel)):
            raise
        found = f"{', '.join(lost)}: found {{}}, which does not tell the argument, expected its value"
        raise Unsupported(
            f"{found}; with the recorded output's dtype in its place: {error}", "lost argument"
        ) from error


def preview(case: Case, registry: Registry, conditions: Conditions | None = None) -> Verdict | None:
    """The skip that is known without running the case; None where it would run."""
    setup = Setup(conditions or Conditions(device="cpu"), registry)
    try:
        call = case.dump.decode(case.record)
        inputs.check_size(call, case.dtype, inputs.available_memory())
        if case.api not in registry.references or case.api not in registry.calls:
            setup.framework.candidates(case.record.namespace, case.record.api, registry.namespaces)
    except (Unsupported, RecordError) as error:
        return Verdict("skip", setup.conditions.standard, str(error), error.kind)
    return None
