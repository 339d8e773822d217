"""One case on one device: both sides run, the standard judges each output, and what was found is said.

A checker has devices and modes for each framework, made for its first case. So a run imports no framework that none of
its dumps needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from pytest_probe import frameworks, inputs
from pytest_probe.check.checked import Checked, PreparedCall
from pytest_probe.check.completion import check_complete
from pytest_probe.check.conditions import Conditions, Setup
from pytest_probe.check.device_memory import Waiting, noting_device_memory
from pytest_probe.check.judging import Judging
from pytest_probe.check.kept import KeptResults
from pytest_probe.check.measuring import MeasurableCall, Measuring
from pytest_probe.check.overflow import by_statistics, recorded_overflow
from pytest_probe.check.replay import NO_CALL, Replay
from pytest_probe.check.replays import AdjustInputs, Replays
from pytest_probe.check.run import CallerResult, replayed, settled_on_cpu
from pytest_probe.check.stored_outputs import check_gradients
from pytest_probe.errors import (
    DeviceMemoryError,
    DeviceRaised,
    HookFailed,
    NoKernel,
    NotMeasured,
    ProbeError,
    RecordError,
    SettingsError,
    TooLargeForDevice,
    Unsupported,
    UnsupportedDtype,
)
from pytest_probe.model.arguments import Arguments, floats_of
from pytest_probe.model.case import DIRECTIONS, Case, Demands, Pair, floating_dtypes
from pytest_probe.model.dump import Direction, Dump, Record
from pytest_probe.model.measurement import CaseTime
from pytest_probe.model.run import Way
from pytest_probe.model.verdict import Verdict
from pytest_probe.numerics.dtypes import NARROW_DTYPES
from pytest_probe.standards.finite import Finite
from pytest_probe.system.memory import out_of_memory
from pytest_probe.user_errors import ends_run, noting_interrupts, raised

if TYPE_CHECKING:
    from pytest_probe.registry import Registry

AdjustVerdict = Callable[[Case, Verdict], Verdict | None]


class Checker:
    """Checks cases on one device, each with its dump's framework; functions with the framework that it is given. It
    keeps nothing of a case: what its sibling may use is in `Checked`."""

    def __init__(
        self,
        conditions: Conditions,
        registry: Registry,
        *,
        framework: str = frameworks.DEFAULT,
        adjust_inputs: AdjustInputs | None = None,
        adjust_verdict: AdjustVerdict | None = None,
        waiting: Waiting = nullcontext,
    ) -> None:
        self.conditions = conditions
        self.registry = registry
        self._waiting = waiting
        self._setups: dict[str, Setup] = {}
        self.setup = self.setup_of(framework)
        self._adjust_inputs = adjust_inputs
        self._adjust_verdict = adjust_verdict

    def setup_of(self, framework: str) -> Setup:
        """A framework's device and modes, by the name that dumps give it."""
        if framework not in self._setups:
            self._setups[framework] = Setup(self.conditions, self.registry, framework, self._waiting)
        return self._setups[framework]

    def _setup(self, case: Case) -> Setup:
        return self.setup_of(case.dump.framework)

    def _replays(self, case: Case, cached: KeptResults | None = None) -> Replays:
        return Replays(self._setup(case), self._adjust_inputs, cached)

    def _judging(self, case: Case) -> Judging:
        return Judging(self._setup(case))

    def timed_again(self, checked: Checked) -> CaseTime:
        """The time of a case, measured anew on new copies of its inputs."""
        assert checked.subject is not None
        with self._setup(checked.case).settled():
            time = checked.subject.time()
        assert time is not None
        return time

    def check(self, case: Case) -> Verdict:
        """The verdict on a case. What is wrong with a record, a file or a call ends in a skip or an error verdict."""
        return self.run(case).verdict

    def run(self, case: Case, previous: Checked | None = None) -> Checked:
        """The verdict on a case, and what it leaves. previous: what the case before left, whose forward run is used
        where it is of the same record."""
        served = previous if previous is not None and previous.serves(case) else None
        return self._checked(case, partial(self._with_memory, case, served))

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
        dtype: bool = True,
        strides: bool = False,
        borders: Callable[..., Any] | None = None,
    ) -> tuple[Verdict, ...]:
        """The verdict on a function's outputs, and with `backward` one on the gradients of all its floating arguments.
        Each of the two may be a Module, which is then a function of its parameters and buffers as well.

        function runs on the device, on copies of args and kwargs (the framework's tensors, in lists, tuples and dicts
        or not, and anything else), reference on the CPU on the same values with every floating tensor as float64. api
        ("Functional.softmax") says whose judge decides, the noise standard without; key is what incoming gradients are
        drawn for. dtype, strides: must outputs have those that the reference gives in the arguments' own dtypes? An
        exception of either function ends in a verdict. borders is the reference with `border` at each place where a
        kernel of the function ends and the next begins: what rounding to the arguments' 16-bit dtype there explains is
        no error. It must give in float64 what the reference gives.
        """
        previous: Checked | None = None
        demands, verdicts = Demands(dtype, strides), []
        try:
            cases = self.pairs(
                function,
                reference,
                args,
                kwargs,
                api=api,
                backward=backward,
                key=key,
                demands=demands,
                borders=borders,
            )
        except UnsupportedDtype as error:
            return (Verdict("skip", self.conditions.standard, str(error), error.kind),)
        for case in cases:
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
        demands: Demands | None = None,
        borders: Callable[..., Any] | None = None,
    ) -> tuple[Case, ...]:
        """The cases that `compare` checks: forward, and backward where it is asked for. origin says whose they are in
        place of a dump's path. Raises Unsupported for an argument that cannot be taken (a sparse tensor)."""
        framework, device = self.setup.framework, self.setup.device
        with self.setup.settled():
            taken = [framework.take(value, device) for value in args]
            called = framework.functions(function, reference)
            bordered = None if borders is None else framework.functions(function, borders).reference
            named = {
                name: framework.take(value, device) for name, value in {**(kwargs or {}), **called.tensors}.items()
            }
        arguments = Arguments(tuple(taken), named, None)
        pair = Pair(called.function, called.reference, arguments, backward, demands, called.constant, bordered)
        namespace, _, name = api.rpartition(".")
        record = Record(key or getattr(function, "__name__", "function"), namespace, name, 0, b"", b"")
        dump = Dump(Path(origin), framework.name, "", "", (record,), lambda _: NO_CALL, lambda _: ())
        return tuple(
            Case(dump, record, direction, None, pair) for direction in DIRECTIONS if backward or direction == "forward"
        )

    def border(self, tensor: Any) -> Any:
        """A tensor as it passes a border between two kernels, in the function that `compare` gets as `borders`: itself,
        but in runs that round there."""
        return self.setup.framework.border(tensor)

    def prepare(self, case: Case, *, gradient: bool) -> PreparedCall | Checked:
        """The case's arguments on the device, for a caller who makes the call; `judge` takes what it returns. The
        skip where they cannot be had.

        gradient: floating tensors require grad.
        """
        try:
            with noting_interrupts(), self._setup(case).settled(), _ended(case):
                prepared = partial(self._prepared, case, gradient)
                return self._setup(case).memory.had(_bytes_on_device(case), prepared, prepared)
        except (Unsupported, RecordError, DeviceRaised, HookFailed) as error:
            return self._undecided(case, error)
        except MemoryError as error:
            return self._undecided(case, out_of_memory(error))

    def _prepared(self, case: Case, gradient: bool) -> PreparedCall:
        replays = self._replays(case)
        reference, autocast = replays.reference(case, replays.call(case))
        reference = settled_on_cpu(reference, autocast)
        arguments = reference.candidate.arguments
        wanted, way = reference.wanted if gradient else None, Way(self._setup(case).device, state="users")
        with noting_device_memory(reference.framework):
            bound = reference.framework.bind(arguments.args, arguments.kwargs, way, wanted)
        return PreparedCall(case, reference, bound)

    def judge(
        self,
        prepared: PreparedCall,
        result: Any,
        direction: Direction = "forward",
        *,
        dtype: bool = True,
        strides: bool = False,
    ) -> Checked:
        """The verdict on what a call on prepared arguments returned: a tensor, or several in a list, tuple or dict.
        The backward takes its gradients; once. dtype, strides: must they be those of the recorded API?"""
        case = replace(prepared.case, direction=direction)
        # What a project registered as a reference gives float64, and says nothing of other dtypes.
        own = case.api not in self.registry.references
        demands = Demands(dtype, strides, recorded=case.dtype is None, own=own)
        reference = replace(prepared.reference, demands=demands)
        source = CallerResult(self._replays(case).device, prepared.bound, result)

        def judged() -> Checked:
            with self._caching(case) as cached:
                replay = replayed(replace(reference, cached=cached), source)
                return self._judging(case).checked(case, replay)

        return self._checked(case, judged)

    def _checked(self, case: Case, judged: Callable[[], Checked]) -> Checked:
        """What `judged` gives, or the verdict where an error stands in the way of one; adjusted by the project."""
        with noting_interrupts():
            return self._adjusted(case, self._found(case, judged))

    def _found(self, case: Case, judged: Callable[[], Checked]) -> Checked:
        try:
            with self._setup(case).settled(), _ended(case):
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
        elif isinstance(error, NoKernel):
            verdict = Verdict("skip", standard, f"{error}{self._emulation(case)}", error.kind)
        elif isinstance(error, Unsupported):
            verdict = Verdict("skip", standard, _located(case, error), error.kind)
        else:
            kind = error.kind if isinstance(error, RecordError) else RecordError.kind
            verdict = Verdict("skip", standard, str(error), kind)
        return Checked(case, verdict, cause=error.__cause__)

    def _emulation(self, case: Case) -> str:
        """How a device without kernels of 16 bit can run a case; "" for another reason, or another device."""
        setup = self._setup(case)
        made = setup.device_name.split(":", 1)[0] in self.registry.devices
        if self.conditions.emulate or self.conditions.judges_stored or made or not _is_narrow(case):
            return ""
        try:
            setup.framework.emulating(setup.device_name)
        except SettingsError:
            return ""
        return "; --probe-emulate computes 16 bit in float32 there, and rounds"

    def _with_memory(self, case: Case, previous: Checked | None) -> Checked:
        """The case judged; alone on the device where its memory ran out, and all anew, since what the sibling left is
        in its way."""
        memory, needed = self._setup(case).memory, _bytes_on_device(case)

        def judged(kept: Replay | ProbeError | None) -> Checked:
            found = self._judged(case, kept)
            return found.without_run() if memory.crowds(needed) else found

        def again() -> Checked:
            if previous is not None:
                previous.without_run()
            return judged(None)

        try:
            return memory.had(needed, lambda: judged(previous.forward if previous is not None else None), again)
        except TooLargeForDevice as error:
            return replace(self._undecided(case, error), forward=error)

    def _measured(self, checked: Checked, subject: MeasurableCall) -> Checked:
        """The case with what is asked of its time and memory."""
        time, memory = subject.time(), subject.memory()
        return replace(checked, verdict=replace(checked.verdict, time=time, memory=memory), subject=subject)

    def _measured_alone(self, case: Case, measuring: Measuring) -> Checked:
        """The time and memory of a case whose results nobody judges."""
        subject = measuring.alone(case, self._replays(case))
        dtypes = sorted({dtype.name for dtype in floats_of(subject.leaves).values()})
        found = self._measured(Checked(case, Verdict("pass", "", dtype="+".join(dtypes))), subject)
        reasons = [each.reason for each in (found.verdict.time, found.verdict.memory) if each is not None]
        if not all(reasons):
            return found
        # Nothing was found out.
        return replace(found, verdict=replace(found.verdict, verdict="skip", reason=reasons[0], kind=NotMeasured.kind))

    @contextmanager
    def _caching(self, case: Case) -> Iterator[KeptResults | None]:
        """What earlier runs kept of the case, and what this one adds."""
        cached = self._setup(case).cached(case)
        try:
            yield cached
        finally:
            if cached is not None:
                cached.close()

    def _judged(self, case: Case, kept: Replay | ProbeError | None) -> Checked:
        if not self.conditions.judged and case.pair is None:
            assert self.conditions.measuring is not None, "a run that does not judge measures"
            return self._measured_alone(case, self.conditions.measuring)
        with self._caching(case) as cached:
            served = kept.with_cached(cached) if isinstance(kept, Replay) else kept
            return self._judged_with(case, served, cached)

    def _judged_with(self, case: Case, kept: Replay | ProbeError | None, cached: KeptResults | None) -> Checked:
        finite = self.conditions.standard == Finite.name
        if self.conditions.judges_stored and finite and case.pair is None:
            told = by_statistics(case, self._replays(case, cached))
            if told is not None:
                return Checked(case, told)
        if self.conditions.judges_stored and case.direction == "backward":
            check_gradients(case.dump.decode(case.record))
        if kept is None:
            try:
                kept = self._replays(case, cached).of(case)
            except (Unsupported, RecordError, DeviceRaised, HookFailed) as error:
                kept = error
            except DeviceMemoryError:
                raise
            except MemoryError as error:
                kept = out_of_memory(error)
        # The backward of a record whose forward could not run is undecided for the same reason, without another try.
        if isinstance(kept, ProbeError):
            return replace(self._undecided(case, kept), forward=kept)
        found = self._judging(case).checked(case, kept)
        if finite and case.direction == "forward":
            notes = (*found.verdict.notes, *recorded_overflow(kept.reference.call))
            found = replace(found, verdict=replace(found.verdict, notes=notes))
        if self.conditions.measuring is None:
            return found
        return self._measured(found, self.conditions.measuring.of_replay(case, kept, self._setup(case)))


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


def _bytes_on_device(case: Case) -> Callable[[], int]:
    """Gives the bytes of its arguments and outputs, those that are known; 0 for a record that cannot be read: its
    verdict says so."""

    @cache
    def needed() -> int:
        if case.pair is not None:
            return sum(leaf.array.nbytes for leaf in case.pair.arguments.tensors.values())
        try:
            return inputs.bytes_on_device(case.dump.decode(case.record), case.dtype)
        except RecordError:
            return 0

    return needed


def _is_narrow(case: Case) -> bool:
    """Does a tensor of 16 bit take part?"""
    if case.pair is not None:
        dtypes = {dtype.name for dtype in floats_of(case.pair.arguments.tensors).values()}
    else:
        dtypes = {case.dtype} if case.dtype is not None else set(floating_dtypes(case.dump.decode(case.record)))
    return not dtypes.isdisjoint(NARROW_DTYPES)


def _located(case: Case, error: Unsupported) -> str:
    """A skip's reason with its file and record, as a RecordError has them. What a device has no kernel for is said
    alike for all records, so that pytest shows it once."""
    if case.pair is not None:
        return str(error)
    return f"{case.dump.path}: {case.id}: {error}"


def preview(case: Case, registry: Registry, conditions: Conditions | None = None) -> Verdict | None:
    """The skip that is known without running the case; None where it would run."""
    setup = Setup(conditions or Conditions(device="cpu"), registry, case.dump.framework)
    try:
        call = case.dump.decode(case.record)
        inputs.check_size(call, case.dtype, inputs.available_memory())
        check_complete(case, call)
        if case.api not in registry.references or case.api not in registry.calls:
            setup.framework.candidates(case.record.namespace, case.record.api, registry.namespaces)
    except (Unsupported, RecordError) as error:
        return Verdict("skip", setup.conditions.standard, str(error), error.kind)
    return None
