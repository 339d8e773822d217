"""Both sides of a case: the device's run and the reference's, from a record or two functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

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
from pytest_probe.execution.case import Case, Pair
from pytest_probe.execution.conditions import Conditions, load_framework
from pytest_probe.execution.likeness import first_line
from pytest_probe.execution.products import Product
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
from pytest_probe.execution.replay import REFERENCE, Origin, Replay
from pytest_probe.execution.replayer import Replayer
from pytest_probe.execution.sampled import sampled_looks
from pytest_probe.execution.sampling import Sampler
from pytest_probe.execution.seeds import incoming
from pytest_probe.execution.sides import Looks, Sides, backward_sides, forward_sides, named_gradients, nearest, whole
from pytest_probe.frameworks.base import Device, Framework, Wanted
from pytest_probe.frameworks.modes import Behaviour, behaviour
from pytest_probe.inputs import Arguments
from pytest_probe.inputs.stored import StoredTensors
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.records.model import Call, Dump, Lost, leaves
from pytest_probe.registry import Registry

AdjustInputs = Callable[[Case, Arguments], Arguments | None]


class Runner:
    """Runs cases on one device. Keeps the last record's forward run for its backward item, until `release`."""

    def __init__(self, conditions: Conditions, registry: Registry, adjust_inputs: AdjustInputs | None = None) -> None:
        self.conditions = conditions
        self.registry = registry
        self.adjust_inputs = adjust_inputs
        self._kept: tuple[object, Replay | Exception] | None = None

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
        self._kept = None

    def keeps(self, case: Case) -> bool:
        """Is the run of the case's record at hand?"""
        return self._kept is not None and self._kept[0] == _key(case)

    def keep(self, case: Case, made: Replay | Exception) -> None:
        """Take a run, or why there is none, for that of the case's record."""
        self._kept = (_key(case), made)

    def replay(self, case: Case) -> Replay:
        """The case's run, made or kept. Raises Unsupported, RecordError, DeviceRaised or HookFailed."""
        if self.conditions.device == RECORDED and case.direction == "backward":
            check_gradients(case.dump.decode(case.record))
        if self._kept is None or self._kept[0] != _key(case):
            self.release()
            self._kept = (_key(case), self.made(case, "dump" if self.conditions.device == RECORDED else "run"))
        replay = self._kept[1]
        if isinstance(replay, Exception):
            raise replay
        return replay

    def made(self, case: Case, origin: Origin) -> Replay | Exception:
        """A run of the case, or why there is none."""
        try:
            if case.pair is not None:
                return self._pair(case.api if case.record.api else case.record.name, case.pair)
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

    def _pair(self, name: str, pair: Pair) -> Replay:
        return self._replayer.pair(
            name, pair.function, pair.reference, pair.arguments, with_gradient=pair.with_gradient
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

    def looks(self, case: Case, replay: Replay) -> Looks:
        """Both sides in the case's direction, the gradients where it is the backward; once."""
        if replay.product is not None:
            return self._sampled(case, replay, replay.product)
        if case.direction == "forward":
            return whole(nearest([forward_sides(reading) for reading in replay.readings()]))
        return whole(nearest(self._backward_sides(case, replay)))

    def again(self, case: Case, looks: Looks) -> Looks:
        """The same of another run of the device."""
        replay = replace(looks.replay, actual=self._replayer.again(looks.replay))
        if replay.product is not None:
            return self.looks(case, replay)
        if case.direction == "forward":
            return whole(forward_sides(replay))
        actual = named_gradients(self._device_gradients(case, replay))
        return whole(backward_sides(replay, actual, looks.sides[0].expected))

    def _sampled(self, case: Case, replay: Replay, product: Product) -> Looks:
        actual: Mapping[str, Any] = replay.actual.outputs
        if case.direction == "backward":
            self._start_backward(case, replay)
            actual = self._device_gradients(case, replay)
        sampler = Sampler(
            replay, product, self.conditions.flops, case.direction, case.record.name, self.conditions.seed
        )
        return sampled_looks(sampler, actual, self._replayer.rounded)

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
