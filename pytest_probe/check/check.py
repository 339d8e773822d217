"""One case on one device, from its record to its verdict: `check` makes the steps, one after the other.

A checker has devices and modes for each framework, made for its first case. So a run imports no framework that none of
its dumps needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from pytest_probe import frameworks, inputs
from pytest_probe.check.both_sides import NO_CALL, BothSides
from pytest_probe.check.device_call import CallerResult, replayed, settled_on_cpu
from pytest_probe.check.device_memory import Waiting, noting_device_memory
from pytest_probe.check.engines import Engines, RunRequest
from pytest_probe.check.judging import Judging, verdict_on
from pytest_probe.check.lost_arguments import check_complete
from pytest_probe.check.outcome import (
    UNDECIDED,
    CaseOutcome,
    MeasurableCall,
    Measuring,
    PreparedCall,
    attempt,
    undecided,
)
from pytest_probe.check.overflow_by_statistics import by_statistics, recorded_overflow
from pytest_probe.check.quantizers import recorded_quantizer
from pytest_probe.check.reference_cache import CachedResults
from pytest_probe.check.runner import AdjustInputs, CaseRunner, naming_lost_arguments
from pytest_probe.check.stored_outputs import StoredOutputs, check_gradients
from pytest_probe.errors import (
    DeviceMemoryError,
    HookFailed,
    NotMeasured,
    ProbeError,
    RecordError,
    Unsupported,
    UnsupportedDtype,
)
from pytest_probe.model.case import DIRECTIONS, Case, Demands, Pair
from pytest_probe.model.dump import Direction, Dump, Record
from pytest_probe.model.measurement import CaseTime, parts_of_case, spending
from pytest_probe.model.run import RECORDED, Arguments, Way, floats_of
from pytest_probe.model.verdict import Verdict
from pytest_probe.standards.finite import Finite
from pytest_probe.user_errors import noting_interrupts

if TYPE_CHECKING:
    from pytest_probe.registry import Registry

AdjustVerdict = Callable[[Case, Verdict], Verdict | None]


def check(
    case: Case, runner: CaseRunner, replay: BothSides | None = None, measuring: Measuring | None = None
) -> CaseOutcome:
    """A case from its record to its verdict. replay: both sides, where they have run already; measuring: what measures
    the call besides."""
    if replay is None:
        try:
            with spending("inputs"):
                recorded = case.dump.decode(case.record)
                call = runner.completed(case, recorded)
                source = runner.source(case, recorded)
            with naming_lost_arguments(call):
                with spending("inputs"):
                    arguments = runner.arguments(case, call)
                with spending("reference"):
                    resolved = runner.resolved(case, call, arguments)
                    reference = runner.reference(resolved)
                with spending("device"):
                    replay = source.replay(reference, resolved)
        except DeviceMemoryError:
            raise
        except UNDECIDED as error:
            return undecided(runner.engines, case, error, in_both=True)
    with spending("judge"):
        judged = Judging(runner.engines, runner.whole).of(case, replay)
    # The run serves the backward, which uses up its graph.
    forward = replay if case.direction == "forward" else None
    found = CaseOutcome(case, verdict_on(judged, runner.engines.request.standard), forward, judged.worst)
    if runner.engines.request.keeps_sides:
        found = replace(found, compared=judged.compared)
    return found if measuring is None else _measured(found, measuring.of_replay(case, replay, runner.engines))


class Checker:
    """Checks cases on one device, each with its dump's framework; functions with the framework that it is given. It
    keeps nothing of a case: what its sibling may use is in `CaseOutcome`."""

    def __init__(
        self,
        request: RunRequest,
        registry: Registry,
        *,
        framework: str = frameworks.DEFAULT,
        adjust_inputs: AdjustInputs | None = None,
        adjust_verdict: AdjustVerdict | None = None,
        waiting: Waiting = nullcontext,
    ) -> None:
        self.request = request
        self.registry = registry
        self._waiting = waiting
        self._known_engines: dict[tuple[str, bool], Engines] = {}
        # Functions that are compared take the framework's own tensors, whatever makes the calls of records.
        self.engines = self.engines_of(framework, of_records=not (request.framework or request.reference_framework))
        self._adjust_inputs = adjust_inputs
        self._adjust_verdict = adjust_verdict

    def changed(self, registry: Registry | None = None, **request: Any) -> Checker:
        """The same with these fields of its request changed, and with another registry where one is given."""
        return Checker(
            replace(self.request, **request),
            registry or self.registry,
            framework=self.engines.name,
            adjust_inputs=self._adjust_inputs,
            adjust_verdict=self._adjust_verdict,
            waiting=self._waiting,
        )

    def engines_of(self, framework: str, *, of_records: bool = True) -> Engines:
        """A framework's device and modes, by the name that dumps give it."""
        key = framework, of_records
        if key not in self._known_engines:
            request, registry = self.request, self.registry
            self._known_engines[key] = Engines(request, registry, framework, self._waiting, of_records=of_records)
        return self._known_engines[key]

    def _engines_for(self, case: Case) -> Engines:
        return self.engines if case.pair is not None else self.engines_of(case.dump.framework)

    def _runner(self, case: Case, cached: CachedResults | None = None) -> CaseRunner:
        return CaseRunner(self._engines_for(case), self._adjust_inputs, cached)

    def timed_again(self, checked: CaseOutcome) -> CaseTime:
        """The time of a case, measured anew on new copies of its inputs."""
        assert checked.subject is not None
        with self._engines_for(checked.case).settled():
            time = checked.subject.time()
        assert time is not None
        return time

    @contextmanager
    def making_calls(self, case: Case) -> Iterator[Engines]:
        """Calls of a case that was checked are made again in here."""
        engines = self._engines_for(case)
        with noting_interrupts(), engines.settled(), engines.memory.turn(_bytes_on_device(case)):
            yield engines

    def check(self, case: Case) -> Verdict:
        """The verdict on a case. What is wrong with a record, a file or a call ends in a skip or an error verdict."""
        return self.run(case).verdict

    def run(self, case: Case, served: CaseOutcome | None = None) -> CaseOutcome:
        """The verdict on a case, and what it leaves. served: what the record's other direction left, whose run is used;
        CaseRuns keeps it."""
        with noting_interrupts(), parts_of_case() as parts:
            with attempt(self._engines_for(case), case) as made:
                made.found = self._with_device(case, served)
            found = self._adjusted(case, made.found)
            return replace(found, verdict=replace(found.verdict, parts=parts()))

    def compare(
        self,
        function: Callable[..., Any],
        reference: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        dtype: bool = True,
        strides: bool = False,
        **further: Any,
    ) -> tuple[Verdict, ...]:
        """The verdict on a function's outputs, and with `backward` one on the gradients of all its floating arguments.

        dtype, strides: must outputs have the reference's in the arguments' own dtypes? An exception of
        either function ends in a verdict. All else is as in `pairs`.
        """
        try:
            cases = self.pairs(function, reference, args, kwargs, demands=Demands(dtype, strides), **further)
        except UnsupportedDtype as error:
            return (Verdict("skip", self.request.standard, str(error), error.kind),)
        runs = CaseRuns(self)
        return tuple(runs.run(case).verdict for case in cases)

    def pairs(
        self,
        function: Callable[..., Any],
        reference: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        api: str = "",
        backward: bool = False,
        gradients: Sequence[Any] = (),
        key: str = "",
        origin: str = "",
        demands: Demands | None = None,
        borders: Callable[..., Any] | None = None,
    ) -> tuple[Case, ...]:
        """The cases that compare a function with a reference: forward, and backward where it is asked for. Each of the
        two may be a Module, which is then a function of its parameters and buffers as well.

        function runs on the device, on copies of args and kwargs (the framework's tensors, in lists, tuples and dicts
        or not, and anything else), reference on the CPU on the same values with every floating tensor as float64. api
        ("Functional.softmax") says whose judge decides; without it the reference's where that is a function of the
        framework's, else the noise standard. gradients are the incoming ones of
        the outputs, in order, None for an output that gets none; without any they are drawn for key. origin says whose
        the cases are in place of a dump's path. borders is the reference with `border` at each place where a kernel of
        the function ends and the next begins: what rounding to the arguments' 16-bit dtype there explains is no error.
        It must give in float64 what the reference gives. Raises Unsupported for an argument
        that cannot be taken (a sparse tensor).
        """
        framework, device = self.engines.framework, self.engines.device
        with self.engines.settled():
            taken = [framework.take(value, device) for value in args]
            known, reference = framework.known(reference)
            inferred, api = bool(known and not api), api or known
            called = framework.functions(function, reference)
            bordered = None if borders is None else framework.functions(function, borders).reference
            named = {
                name: framework.take(value, device) for name, value in {**(kwargs or {}), **called.tensors}.items()
            }
            incoming = [None if value is None else framework.take(value, device) for value in gradients]
        arguments = Arguments(tuple(taken), named, tuple(incoming) or None)
        functions = called.function, called.reference
        pair = Pair(*functions, arguments, backward, demands, called.constant, bordered, inferred)
        namespace, _, name = api.rpartition(".")
        record = Record(key or getattr(function, "__name__", "function"), namespace, name, 0, b"", b"")
        dump = Dump(Path(origin), framework.name, "", "", (record,), lambda _: NO_CALL, lambda _: ())
        return tuple(
            Case(dump, record, direction, None, pair) for direction in DIRECTIONS if backward or direction == "forward"
        )

    def border(self, tensor: Any) -> Any:
        """A tensor as it passes a border between two kernels, in the function that `compare` gets as `borders`: itself,
        but in runs that round there."""
        return self.engines.framework.border(tensor)

    def prepare(self, case: Case, *, gradient: bool) -> PreparedCall | CaseOutcome:
        """The case's arguments on the device, for a caller who makes the call; `judge` takes what it returns. The
        skip where they cannot be had.

        gradient: floating tensors require grad.
        """
        engines, needed = self._engines_for(case), _bytes_on_device(case)
        with noting_interrupts(), attempt(engines, case) as made:
            with engines.memory.turn(needed):
                return self._prepared(case, gradient)
            with engines.memory.turn_alone(needed):
                return self._prepared(case, gradient)
        return made.found

    def _prepared(self, case: Case, gradient: bool) -> PreparedCall:
        runner = self._runner(case)
        call = runner.decoded(case)
        resolved = runner.resolved(case, call, runner.arguments(case, call))
        reference = settled_on_cpu(runner.reference(resolved), resolved.autocast)
        arguments = reference.candidate.arguments
        wanted, way = reference.wanted if gradient else None, Way(runner.engines.device, state="users")
        with noting_device_memory(reference.framework):
            bound = reference.framework.bind(arguments, way, wanted)
        return PreparedCall(case, reference, bound)

    def judge(
        self,
        prepared: PreparedCall,
        result: Any,
        direction: Direction = "forward",
        *,
        dtype: bool = True,
        strides: bool = False,
    ) -> CaseOutcome:
        """The verdict on what a call on prepared arguments returned: a tensor, or several in a list, tuple or dict.
        The backward takes its gradients; once. dtype, strides: must they be those of the recorded API?"""
        case = replace(prepared.case, direction=direction)
        # What a project registered as a reference gives float64, and says nothing of other dtypes.
        own = case.api not in self.registry.references
        demands = Demands(dtype, strides, recorded=case.dtype is None, own=own)
        reference = replace(prepared.reference, demands=demands)
        with noting_interrupts():
            with attempt(self._engines_for(case), case) as made, self._caching(case) as cached:
                runner = self._runner(case, cached)
                source = CallerResult(runner.device, prepared.bound, result)
                made.found = check(case, runner, replayed(replace(reference, cached=cached), source))
            return self._adjusted(case, made.found)

    def _adjusted(self, case: Case, found: CaseOutcome) -> CaseOutcome:
        try:
            adjusted = self._adjust_verdict(case, found.verdict) if self._adjust_verdict is not None else None
        except (HookFailed, MemoryError) as error:
            failed = undecided(self._engines_for(case), case, error)
            return replace(found, verdict=failed.verdict, cause=failed.cause)
        return found if adjusted is None else replace(found, verdict=adjusted)

    def _with_device(self, case: Case, served: CaseOutcome | None) -> CaseOutcome:
        memory, needed = self._engines_for(case).memory, _bytes_on_device(case)
        with memory.turn(needed):
            return self._in_turn(case, served)
        # All anew, and alone: what the sibling left is in its way.
        if served is not None:
            served.without_run()
        with memory.turn_alone(needed):
            return self._in_turn(case, None)

    def _in_turn(self, case: Case, previous: CaseOutcome | None) -> CaseOutcome:
        """A case that has the device, and leaves nothing on a crowded one."""
        engines, forward = self._engines_for(case), None if previous is None else previous.forward
        with self._caching(case) as cached:
            runner = self._runner(case, cached)
            found = self._without_sides(case, runner, forward)
            if found is None and isinstance(forward, ProbeError):
                # The backward of a record whose forward could not run is undecided for the same reason.
                found = undecided(engines, case, forward, in_both=True)
            elif found is None:
                replay = forward.with_cached(cached) if isinstance(forward, BothSides) else None
                found = check(case, runner, replay, self.request.measuring)
                if self.request.standard == Finite.name and isinstance(found.forward, BothSides):
                    notes = (*found.verdict.notes, *recorded_overflow(found.forward.reference.call))
                    found = replace(found, verdict=replace(found.verdict, notes=notes))
        return found.without_run() if engines.memory.crowds(_bytes_on_device(case)) else found

    def _without_sides(
        self, case: Case, runner: CaseRunner, forward: BothSides | ProbeError | None
    ) -> CaseOutcome | None:
        """What needs no reference: a run that measures only, a quantiser, or an overflow that a record's statistics
        tell. Raises Unsupported where a dump has not what is to be judged. forward is what the record's forward left.
        """
        request = self.request
        if not request.judged and case.pair is None:
            assert request.measuring is not None, "a run that does not judge measures"
            subject = request.measuring.alone(case, runner)
            dtypes = sorted({dtype.name for dtype in floats_of(subject.leaves).values()})
            found = _measured(CaseOutcome(case, Verdict("pass", "", dtype="+".join(dtypes))), subject)
            reasons = [each.reason for each in (found.verdict.time, found.verdict.memory) if each is not None]
            if not all(reasons):
                return found
            # Nothing was found out.
            skip = replace(found.verdict, verdict="skip", reason=reasons[0], kind=NotMeasured.kind)
            return replace(found, verdict=skip)
        if case.api in self.registry.quantizers and case.pair is None:
            return recorded_quantizer(case, runner)
        if not request.judges_stored:
            return None
        told = by_statistics(case, runner) if request.standard == Finite.name and case.pair is None else None
        if told is None and case.direction == "backward":
            source = forward.source if isinstance(forward, BothSides) else None
            check_gradients(source.call if isinstance(source, StoredOutputs) else case.dump.decode(case.record))
        return None if told is None else CaseOutcome(case, told)

    @contextmanager
    def _caching(self, case: Case) -> Iterator[CachedResults | None]:
        """What earlier runs kept of the case, and what this one adds."""
        cached = self._engines_for(case).cached(case)
        try:
            yield cached
        finally:
            if cached is not None:
                cached.close()


class CaseRuns:
    """Checks cases with one checker, one after the other. What a case leaves serves the other direction of its record.
    It is dropped before another record runs: the peak of memory is that of the largest case."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        self.last: CaseOutcome | None = None

    def run(self, case: Case) -> CaseOutcome:
        self.release(case)
        served, self.last = self.last, None
        self.last = self.checker.run(case, served)
        return self.last

    def release(self, unless: Case | None = None) -> None:
        """Forget what the last case left, unless it serves this one."""
        if self.last is not None and not (unless is not None and self.last.serves(unless)):
            self.last = None


def _measured(checked: CaseOutcome, subject: MeasurableCall) -> CaseOutcome:
    """The case with what is asked of its time and memory."""
    time, memory = subject.time(), subject.memory()
    return replace(checked, verdict=replace(checked.verdict, time=time, memory=memory), subject=subject)


def _bytes_on_device(case: Case) -> Callable[[], int]:
    """Gives the known bytes of its arguments and outputs; 0 for a record that cannot be read: its
    verdict says so."""

    @cache
    def needed() -> int:
        if case.pair is not None:
            return sum(leaf.array.nbytes for leaf in case.pair.arguments.tensors.values())
        call = case.dump.readable(case.record)
        return 0 if call is None else inputs.bytes_on_device(call, case.dtype)

    return needed


def preview(case: Case, registry: Registry) -> Verdict | None:
    """The skip that is known without running the case; None where it would run."""
    framework = case.dump.framework
    # Where only what its dumps stored can be judged here, a run does that.
    stored_alone = frameworks.unavailable(framework) and not frameworks.unavailable(framework, stored=True)
    request = RunRequest(device=RECORDED if stored_alone else "cpu")
    engines = Engines(request, registry, framework, of_records=True)
    in_pieces = engines.request.judges_parts
    try:
        call = case.dump.decode(case.record)
        inputs.check_size(call, case.dtype, inputs.available_memory(), in_pieces=in_pieces)
        check_complete(case, call)
        if case.api not in registry.references or case.api not in registry.calls:
            engines.framework.candidates(case.record.namespace, case.record.api, registry.namespaces)
    except (Unsupported, RecordError) as error:
        return Verdict("skip", engines.request.standard, str(error), error.kind)
    return None
