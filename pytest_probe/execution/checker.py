"""One case on one device: run both sides, ask the standard, and say what was found."""

from __future__ import annotations

import gc
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pytest_probe import inputs
from pytest_probe.errors import (
    DeviceRaised,
    HookFailed,
    NoKernel,
    NoReference,
    NotRecorded,
    RecordError,
    UnknownAPI,
    Unsupported,
)
from pytest_probe.execution import hooked
from pytest_probe.execution.case import DIRECTIONS, Case, Pair
from pytest_probe.execution.likeness import first_line
from pytest_probe.execution.products import Product
from pytest_probe.execution.questions import questions
from pytest_probe.execution.recorded import (
    NOT_STORED,
    RECORDED,
    Recorded,
    check_gradients,
    check_stored,
    judged_gradients,
    seeded_outputs,
    stored_gradients,
    stored_run,
)
from pytest_probe.execution.repeats import Repeats
from pytest_probe.execution.replay import NO_CALL, REFERENCE, Origin, Replay
from pytest_probe.execution.replayer import Replayer
from pytest_probe.execution.sampled import placed, sampled_looks
from pytest_probe.execution.sampling import Sampler
from pytest_probe.execution.seeds import incoming
from pytest_probe.execution.sides import Looks, Sides, backward_sides, forward_sides, named_gradients, nearest, whole
from pytest_probe.execution.summary import summed
from pytest_probe.frameworks.base import Bound, Device, Framework, Wanted, Way
from pytest_probe.frameworks.modes import Behaviour, behaviour
from pytest_probe.inputs import Arguments
from pytest_probe.inputs.stored import StoredTensors
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.records.model import Call, Direction, Dump, Lost, Record, leaves
from pytest_probe.records.rawjson import paused_gc
from pytest_probe.registry import Registry
from pytest_probe.standards.facts import facts
from pytest_probe.standards.modal import judged_with_modes
from pytest_probe.standards.peer_measures import measures
from pytest_probe.standards.question import Question, Standard
from pytest_probe.standards.verdict import SEVERITY, OutputVerdict, Verdict

FLOPS = 2e10


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a run was asked for: device None is the framework's own choice, workers share the machine's cores,
    repeat is how often the device runs each case, allow names device modes, or says "auto" for what the framework's
    flags allow, or "none". reference_device is where float64 runs, flops how many a product or a convolution may take
    there in one run before it is sampled. measured: verdicts carry the measures that msprobe's files hold."""

    device: str | None = None
    seed: int = 0
    inputs: str = "auto"
    standard: str = "auto"
    workers: int = 1
    allow: tuple[str, ...] = ("auto",)
    repeat: int = 1
    reference_device: str = "cpu"
    flops: float = FLOPS
    measured: bool = False


@dataclass(frozen=True, slots=True)
class Lent:
    """A record's arguments on the device, for a call that a test makes: tensors of its own, which it may write to."""

    case: Case
    replay: Replay
    bound: Bound


AdjustInputs = Callable[[Case, Arguments], Arguments | None]
AdjustVerdict = Callable[[Case, Verdict], Verdict | None]


def load_framework(name: str) -> Framework:
    """The framework that a dump names. Raises Unsupported where it cannot be run here."""
    if name != "pytorch":
        raise Unsupported(f"a dump of {name}; this version replays pytorch", "another framework")
    if importlib.util.find_spec("torch") is None:
        raise Unsupported("torch is not installed: pip install 'pytest-probe[torch]'", "framework not installed")
    first = "torch" not in sys.modules
    with paused_gc():
        from pytest_probe.frameworks.torch import TorchFramework
    if first:
        # What the import made stays as long as the process: no collection needs to walk over all of it again.
        gc.freeze()
    return TorchFramework()


class Checker:
    """Checks cases on one device. Keeps the last record's forward run for its backward item, until `release`.

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
        self.adjust_inputs = adjust_inputs
        self.adjust_verdict = adjust_verdict
        self._kept: tuple[object, Replay | Exception] | None = None
        self._last: Sides | None = None
        self.cause: BaseException | None = None

    @cached_property
    def framework(self) -> Framework:
        framework = load_framework("pytorch")
        if self.conditions.workers > 1:
            framework.share_threads(self.conditions.workers)
        return framework

    @cached_property
    def device(self) -> Device:
        """The device under test. Raises SettingsError where the framework has none of that name."""
        name = self.conditions.device or self.framework.default_device()
        if name == RECORDED:
            return Recorded()
        made = self.registry.devices.get(name.split(":", 1)[0])
        return self.framework.device(name) if made is None else hooked.device(made, name)

    @cached_property
    def modes(self) -> tuple[Behaviour, ...]:
        """The device modes that are allowed."""
        allow = self.conditions.allow
        names = self.framework.allowed(self.device.name) if allow == ("auto",) else allow
        return tuple(behaviour(name) for name in names if name != "none")

    @cached_property
    def _reference_device(self) -> str:
        """Raises SettingsError where the framework has none of that name."""
        return self.framework.device(self.conditions.reference_device, "--probe-reference-device").name

    @cached_property
    def _replayer(self) -> Replayer:
        registry = self.registry
        device = self.framework.device("cpu") if self.device.name == RECORDED else self.device
        return Replayer(
            self.framework,
            device,
            registry.calls,
            registry.references,
            registry.namespaces,
            replace(REFERENCE, place=self._reference_device),
            self.conditions.flops,
        )

    def describe(self) -> dict[str, str]:
        """Framework, version, device and the flags that change numerics."""
        modes = ", ".join(mode.name for mode in self.modes) or "none"
        places = {"device": self.device.name, "reference_device": self._reference_device}
        return {**places, "modes": modes, **self.framework.describe()}

    def release(self) -> None:
        """Forget the run kept for the sibling item, and its memory."""
        self._kept = self._last = self.cause = None

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
        self._kept = None
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
        taken = [self.framework.take(value, self.device) for value in args]
        named = {name: self.framework.take(value, self.device) for name, value in (kwargs or {}).items()}
        pair = Pair(function, reference, Arguments(tuple(taken), named, None), backward)
        namespace, _, name = api.partition(".")
        record = Record(key or getattr(function, "__name__", "function"), namespace, name, 0, b"", b"")
        dump = Dump(Path(origin), self.framework.name, "", "", (record,), lambda _: NO_CALL, lambda _: ())
        return tuple(
            Case(dump, record, direction, None, pair) for direction in DIRECTIONS if backward or direction == "forward"
        )

    def lend(self, case: Case, *, gradient: bool) -> Lent | Verdict:
        """The case's arguments on the device, for a caller who makes the call; `judge` takes what it returns. The
        verdict, a skip, where they cannot be had.

        gradient: floating tensors require grad.
        """
        made = self._made(case, "test")
        if isinstance(made, Exception):
            return self._undecided(case, made)
        arguments, wanted = made.candidate.arguments, made.wanted if gradient else None
        return Lent(case, made, self.framework.bind(arguments.args, arguments.kwargs, Way(self.device), wanted))

    def judge(self, lent: Lent, result: Any, direction: Direction = "forward") -> Verdict:
        """The verdict on what a call on lent arguments returned: the framework's tensor, or several in a list, tuple
        or dict. The backward takes its gradients; once."""
        made: Replay | Exception = lent.replay
        try:
            lent.replay.actual = self.framework.left(lent.bound, result)
        except Unsupported as error:
            made = error
        case = replace(lent.case, direction=direction)
        self._kept = (_key(case), made)
        return self.check(case)

    def save(self, path: Path) -> None:
        """Write the last case's inputs, outputs and gradients of both sides. Raises OSError."""
        if self._last is None:
            return
        last = self._last
        arrays = {name: leaf.array for name, leaf in last.replay.leaves.items()}
        for side, values in (("seed", last.replay.seeds), ("actual", last.actual), ("expected", last.expected)):
            arrays |= {f"{side}.{name}": value for name, value in values.items() if isinstance(value, np.ndarray)}
        self.framework.save(path, arrays)

    def _check(self, case: Case) -> Verdict:
        if self.conditions.device == RECORDED and case.direction == "backward":
            check_gradients(case.dump.decode(case.record))
        looks = self._looks(case, self._replay(case))
        if self._repeats(case, looks.replay) > 1:
            return self._repeated(case, looks)
        return summed(self.conditions.standard, self._outputs(case, looks), looks.replay)

    def _looks(self, case: Case, replay: Replay) -> Looks:
        if replay.product is not None:
            return self._sampled(case, replay, replay.product)
        if case.direction == "forward":
            return whole(nearest([forward_sides(reading) for reading in replay.readings()]))
        return whole(nearest(self._backward_sides(case, replay)))

    def _outputs(self, case: Case, looks: Looks) -> tuple[OutputVerdict, ...]:
        """The verdict on each output. The sides of the worst are kept, to be saved."""
        judged = [(sides, self._judged(case, sides)) for sides in looks.sides]
        worst = max(judged, key=lambda item: max((SEVERITY[output.verdict] for output in item[1]), default=-1))
        self._last = worst[0]
        return tuple(output for _, outputs in judged for output in outputs)

    def _judged(self, case: Case, sides: Sides) -> tuple[OutputVerdict, ...]:
        judge = hooked.standard(self.registry.standards[self.conditions.standard])
        asked = questions(case.api, case.direction, sides.replay, sides.actual, sides.expected, self.conditions.seed)
        judged = (item if isinstance(item, OutputVerdict) else self._output(judge, item) for item in asked)
        if sides.sample is not None:
            judged = (placed(item, sides.sample) for item in judged)
        return (*sides.structural, *judged)

    def _output(self, judge: Standard, question: Question) -> OutputVerdict:
        verdict = judged_with_modes(judge, question, self.modes)
        if not self.conditions.measured:
            return verdict
        return replace(verdict, measures=measures(question, self.conditions.standard))

    def _sampled(self, case: Case, replay: Replay, product: Product) -> Looks:
        actual: Mapping[str, Any] = replay.actual.outputs
        if case.direction == "backward":
            self._start_backward(case, replay)
            actual = self._device_gradients(case, replay)
        sampler = Sampler(
            replay, product, self.conditions.flops, case.direction, case.record.name, self.conditions.seed
        )
        return sampled_looks(sampler, actual, self._replayer.rounded)

    def _repeats(self, case: Case, replay: Replay) -> int:
        """How often the device runs: what draws random numbers, or leaves memory as it was, is made to differ."""
        differs = not facts(case.api).classes.isdisjoint(("random", "uninitialised"))
        return 1 if differs or replay.origin != "run" else self.conditions.repeat

    def _repeated(self, case: Case, looks: Looks) -> Verdict:
        """The worst verdict on each output of several runs, with how far they lie apart."""
        repeats = Repeats()
        last: Sides | None = None
        for number in range(self.conditions.repeat):
            looks = self._again(case, looks) if number else looks
            if repeats.add(looks.actual) and repeats.judged(self._outputs(case, looks)):
                last = self._last
        self._last = last
        verdict = summed(self.conditions.standard, repeats.outputs(), looks.replay)
        return replace(verdict, notes=(*verdict.notes, *repeats.notes()))

    def _again(self, case: Case, looks: Looks) -> Looks:
        replay = replace(looks.replay, actual=self._replayer.again(looks.replay))
        if replay.product is not None:
            return self._looks(case, replay)
        if case.direction == "forward":
            return whole(forward_sides(replay))
        actual = named_gradients(self._device_gradients(case, replay))
        return whole(backward_sides(replay, actual, looks.sides[0].expected))

    def _replay(self, case: Case) -> Replay:
        key = _key(case)
        if self._kept is None or self._kept[0] != key:
            self.release()
            self._kept = (key, self._made(case, "dump" if self.conditions.device == RECORDED else "run"))
        replay = self._kept[1]
        if isinstance(replay, Exception):
            raise replay
        return replay

    def _made(self, case: Case, origin: Origin) -> Replay | Exception:
        try:
            if case.pair is not None:
                return self._pair(case.record, case.pair)
            call = case.dump.decode(case.record)
            if origin == "dump":
                check_stored(call)
            arguments = self._arguments(case, call)
            as_recorded = case.dtype is None
            with _blaming(call):
                if origin == "run":
                    return self._replayer.replay(case.record, call, arguments, as_recorded=as_recorded)
                expected = self._replayer.expect(case.record, call, arguments, as_recorded=as_recorded, origin=origin)
            if origin == "dump":
                expected.device = self.device
                expected.actual = stored_run(case.record, call, expected, self._files(case.dump))
            return expected
        except (Unsupported, RecordError, DeviceRaised, HookFailed) as error:
            return error

    def _pair(self, record: Record, pair: Pair) -> Replay:
        return self._replayer.pair(
            record, pair.function, pair.reference, pair.arguments, with_gradient=pair.with_gradient
        )

    def _files(self, dump: Dump) -> StoredTensors:
        return StoredTensors(dump.path, dump.data_dirs, self.framework.load)

    def _arguments(self, case: Case, call: Call) -> Arguments:
        inputs.check_size(call, case.dtype, inputs.available_memory())
        arguments = inputs.build(
            call,
            record=case.record.name,
            api=case.api,
            dtype=case.dtype,
            seed=self.conditions.seed,
            kind=self.conditions.inputs,
            files=self._files(case.dump),
        )
        adjusted = self.adjust_inputs(case, arguments) if self.adjust_inputs is not None else None
        return arguments if adjusted is None else adjusted

    def _start_backward(self, case: Case, replay: Replay) -> None:
        """Draw the incoming gradients. Raises NoReference where the reference has none to give."""
        self._kept = None  # a graph gives its gradients once
        if replay.call.unrecorded:
            raise Unsupported(replay.call.unrecorded, NotRecorded.kind)
        if replay.wanted is None:
            raise NoReference("no output of the reference can be differentiated")
        if replay.origin == "dump":
            _keep_stored(replay, replay.wanted)
        replay.seeds = incoming(case, replay, self.conditions.seed)

    def _backward_sides(self, case: Case, replay: Replay) -> list[Sides]:
        self._start_backward(case, replay)
        readings = list(replay.readings())
        try:
            expected = [self.framework.gradients(reading.expected, replay.seeds) for reading in readings]
        except Exception as error:
            raise NoReference(f"the gradient in float64 raised {type(error).__name__}: {first_line(error)}") from error
        actual = named_gradients(self._device_gradients(case, replay))
        if replay.wanted is not None:
            names = replay.wanted.names
            expected = [{name: side[name] for name in side if name in names} for side in expected]
        sides = zip(readings, map(named_gradients, expected), strict=True)
        return [backward_sides(reading, actual, side) for reading, side in sides]

    def _device_gradients(self, case: Case, replay: Replay) -> dict[str, AnyArray]:
        if replay.origin == "dump" and replay.wanted is not None:
            return stored_gradients(case.record, replay.call, replay.wanted.names, self._files(case.dump))
        try:
            return self.framework.gradients(replay.actual, replay.seeds)
        except Exception as error:
            raise self._replayer.device_trouble(error) from error


def _keep_stored(replay: Replay, wanted: Wanted) -> None:
    """Ask for those gradients only that a dump stored, with a note on the others that arguments wanted."""
    strange = sorted(seeded_outputs(replay.call) - set(replay.expected.differentiable))
    if strange:
        raise NoReference(f"{', '.join(strange)} of the reference cannot be differentiated")
    names = wanted.names & judged_gradients(replay.call)
    if not names:
        raise Unsupported("no gradient was stored that is one argument's alone", NOT_STORED)
    others = sorted((replay.call.outgoing or {}).keys() - names)
    if others:
        replay.notes += (f"not judged, since the dump does not tell their own gradient: {', '.join(others)}",)
    replay.wanted = replace(wanted, names=names)


def _key(case: Case) -> object:
    return id(case.dump), case.record.name, case.dtype


def _located(case: Case, error: Unsupported) -> str:
    """A skip's reason with its file and record, as a RecordError has them. What a device has no kernel for is said
    alike for all records, so that pytest shows it once."""
    if isinstance(error, NoKernel) or case.pair is not None:
        return str(error)
    return f"{case.dump.path}: {case.id}: {error}"


@contextmanager
def _blaming(call: Call) -> Iterator[None]:
    """Where the dump lost an argument and the call does not work out, that is the reason."""
    try:
        yield
    except Unsupported as error:
        trees = (("input_args", call.args), ("input_kwargs", call.kwargs))
        lost = [path for root, tree in trees for path, value in leaves(tree, root) if isinstance(value, Lost)]
        if not lost or isinstance(error, (UnknownAPI, NoKernel)):
            raise
        found = f"{', '.join(lost)}: found {{}}, which does not tell the argument, expected its value"
        raise Unsupported(
            f"{found}; with the recorded output's dtype in its place: {error}", "lost argument"
        ) from error


def preview(case: Case, registry: Registry, conditions: Conditions | None = None) -> Verdict | None:
    """The skip that is known without running the case; None where it would run."""
    checker = Checker(conditions or Conditions(device="cpu"), registry)
    try:
        framework = checker.framework
        call = case.dump.decode(case.record)
        inputs.check_size(call, case.dtype, inputs.available_memory())
        if case.api not in registry.references or case.api not in registry.calls:
            framework.candidates(case.record.namespace, case.record.api, registry.namespaces)
    except (Unsupported, RecordError) as error:
        return Verdict("skip", checker.conditions.standard, str(error), error.kind)
    return None
