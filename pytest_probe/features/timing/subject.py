"""What is measured of a case: its call as the device under test makes it, and how much that call moves and computes.

Time alone needs no reference: the shapes and dtypes on the device show which function a record is. Where results are
judged the replay shows it, and both ways measure the same call.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.check.both_sides import BothSides, Candidate
from pytest_probe.check.gradients import incoming
from pytest_probe.check.large.contractions import contraction
from pytest_probe.check.prepare import default_dtype
from pytest_probe.check.reference import running_statistics
from pytest_probe.check.runner import CaseRunner
from pytest_probe.check.structure import described, dtypes_fit, recorded, shapes_fit
from pytest_probe.errors import DeviceRaised, NoKernel, NotMeasured, ReplayDiffers
from pytest_probe.frameworks.base import Calls, looked_up
from pytest_probe.inputs.draws import RecordStreams
from pytest_probe.model.case import Case
from pytest_probe.model.dump import Call
from pytest_probe.model.measurement import Shape
from pytest_probe.model.run import (
    Arguments,
    BoundCall,
    Device,
    Leaf,
    MeasuredCall,
    Run,
    Wanted,
    Way,
    floats_of,
    with_leaves,
)
from pytest_probe.numerics.arrays import same_bytes
from pytest_probe.numerics.dtypes import is_floating, round_to, widen
from pytest_probe.standards.tables import classes_of

# What a tensor of equal numbers is multiplied by: it draws less power, and clocks rise.
_LEAST, _MOST = 0.5, 1.5
# APIs that read each input element once, and compute about one operation with it.
_SUMS = frozenset(("terms_of_reduction", "terms_of_row", "terms_of_exponentials"))


class Subject(Struct, frozen=True):
    """The call to measure; bound has its arguments by name, outputs the shape and the bytes of each forward output."""

    framework: Calls
    device: Device
    call: MeasuredCall
    bound: BoundCall
    outputs: Mapping[str, tuple[Shape, int]]

    @property
    def leaves(self) -> Mapping[str, Leaf]:
        return self.call.arguments.tensors

    @property
    def input_bytes(self) -> int:
        """The bytes of all tensor arguments; one that is passed twice counts once."""
        return sum({id(leaf.array): leaf.array.nbytes for leaf in self.leaves.values()}.values())

    @property
    def classes(self) -> frozenset[str]:
        return classes_of(self.bound.name)

    def varied(self, record: str, seed: int) -> Subject:
        """It with other numbers in floating tensors that hold one number only. record names the random stream."""
        leaves = dict(self.leaves)
        for name, leaf in self.leaves.items():
            array = leaf.array
            if array.size < 2 or not is_floating(array.dtype):
                continue
            first = widen(array.reshape(-1)[:1])[0]
            if np.isfinite(first) and not np.any(widen(array) != first):
                drawn = RecordStreams(record, seed).at(f"time.{name}").uniform(_LEAST, _MOST, array.shape)
                varied = round_to(drawn * (first or 1.0), array.dtype).astype(array.dtype)
                leaves[name] = replace(leaf, array=varied)
        call = replace(self.call, arguments=with_leaves(self.call.arguments, leaves))
        return replace(self, call=call)


def of_replay(case: Case, replay: BothSides, framework: Calls, device: Device, seed: int) -> Subject:
    """The subject of a case whose record ran, for its results to be judged. Raises DeviceRaised where it has no
    gradients."""
    reference, actual = replay.reference, replay.actual
    wanted = reference.recorded_state
    if case.direction == "backward" and (wanted is None or not wanted.names):
        wanted = reference.wanted
    way, writes = reference.way_under_test(device), reference.changed | actual.changed
    found = _Found(framework, reference.candidate, reference.call, way, wanted, actual)
    names = [name for name in reference.run.differentiable if name in actual.differentiable]
    return found.subject(case, names, writes, seed)


def alone(case: Case, runner: CaseRunner, seed: int) -> Subject:
    """The subject of a case of which only the device runs. Raises Unsupported or RecordError."""
    call = runner.decoded(case)
    arguments = runner.arguments(case, call)
    misfits: list[str] = []
    troubles: list[NoKernel | DeviceRaised] = []
    for found in _tries(case, call, arguments, runner, troubles):
        run = found.run
        if not shapes_fit(run, call) or (case.dtype is None and not dtypes_fit(run, call)):
            misfits.append(f"{found.candidate.path} gives {described(run)}")
        elif case.direction == "forward" or run.differentiable:
            # Not every kernel that writes to an argument says so.
            leaves = found.candidate.arguments.tensors
            silent = (name for name, leaf in leaves.items() if not same_bytes(run.after(name), leaf.array))
            return found.subject(case, list(run.differentiable), run.changed.union(silent), seed)
    if misfits:
        raise ReplayDiffers(f"{misfits[0]}; recorded: {recorded(call)}")
    if troubles and isinstance(troubles[0], NoKernel):
        raise troubles[0]
    if troubles:
        raise NotMeasured(str(troubles[0])) from troubles[0].__cause__
    raise NotMeasured("no output of the device can be differentiated")


class _Found(Struct, frozen=True):
    """A call that ran on the device."""

    framework: Calls
    candidate: Candidate
    call: Call
    way: Way
    wanted: Wanted | None
    run: Run

    def subject(self, case: Case, names: list[str], writes: frozenset[str], seed: int) -> Subject:
        """names are the outputs that can be differentiated."""
        candidate, run = self.candidate, self.run
        seeds = None
        if case.direction == "backward":
            seeds = incoming(case, self.call, candidate.arguments, names, list(run.outputs), run.outputs, seed)
        wanted = self.wanted
        if wanted is not None:
            # A copy of an argument that nothing writes to would be a step of the gradients' way.
            wanted = replace(wanted, copies=not writes.isdisjoint(wanted.names))
        measured = MeasuredCall(
            looked_up(candidate.on_device), candidate.arguments, self.way, wanted, writes, incoming=seeds
        )
        assert self.way.device is not None
        arguments = candidate.arguments
        bound = frameworks.signatures(self.framework.name).bind(candidate.api, arguments.args, arguments.kwargs)
        arrays = {name: value for name, value in run.outputs.items() if isinstance(value, np.ndarray)}
        outputs = {name: (tuple(map(int, each.shape)), int(each.nbytes)) for name, each in arrays.items()}
        return Subject(self.framework, self.way.device, measured, bound, outputs)


def _tries(
    case: Case, call: Call, arguments: Arguments, runner: CaseRunner, troubles: list[NoKernel | DeviceRaised]
) -> Iterator[_Found]:
    """What the record may be, as the device runs it; what it raises is added to troubles."""
    source, resolved = runner.device, runner.resolved(case, call, arguments)
    # A dump that records its surroundings knows the autocast, so it comes first; else no autocast comes first.
    casts = dict.fromkeys((resolved.autocast, "") if call.surroundings is not None else ("", resolved.autocast))
    for candidate in resolved.candidates:
        for cast in casts:
            way = Way(device=source.device, autocast=cast, default=default_dtype(call), state="recorded")
            for wanted in _states(case, candidate, running_statistics(source.framework, candidate)):
                given = candidate.arguments
                try:
                    with source.running():
                        run = source.framework.run(candidate.on_device, given, way, wanted)
                except (NoKernel, DeviceRaised) as error:
                    troubles.append(error)
                    continue
                yield _Found(source.framework, candidate, call, way, wanted, run)


def _states(case: Case, candidate: Candidate, running: frozenset[str]) -> Iterator[Wanted | None]:
    """Which gradients the program recorded, likeliest first; running are statistics that the call updates."""
    leaves: Mapping[str, Any] = candidate.arguments.tensors
    every = frozenset(floats_of(leaves)) - candidate.constant
    names = frozenset(name for name in every if leaves[name].requires_grad)
    if case.record.backward is not None and not names:
        names = every
    if names:
        yield Wanted(names, candidate.in_place)
        yield Wanted(names, True)
        yield Wanted(names - running, True)
    if case.direction == "forward":
        yield None


class Work(Struct, frozen=True):
    """Bytes that a call must move at least, and operations: an addition and a multiplication for each term of a
    product, one for each element elsewhere. product: it multiplies matrices, or convolves."""

    bytes: int
    flops: float
    product: bool


def work(subject: Subject) -> Work | None:
    """The work of a forward, or of a backward; None where the API is in no list."""
    found = contraction(subject.bound)
    if found is not None and math.isfinite(found.flops):
        factors = found.factors.keys() & _wanted(subject) if subject.call.incoming is not None else {""}
        return Work(_moved(subject), found.flops * len(factors), True)
    if not subject.classes.isdisjoint(_SUMS):
        sizes = [leaf.array.size for leaf in subject.leaves.values()]
        return Work(_moved(subject), float(max(sizes, default=0)), False)
    if "elementwise" in subject.classes:
        return Work(_moved(subject), float(sum(math.prod(shape) for shape, _ in subject.outputs.values())), False)
    return None


def _wanted(subject: Subject) -> frozenset[str]:
    return frozenset() if subject.call.wanted is None else subject.call.wanted.names


def _moved(subject: Subject) -> int:
    """Bytes of inputs and outputs; for a backward, of incoming gradients, gradients, and the factors of a product."""
    incoming, leaves = subject.call.incoming, subject.leaves
    if incoming is None:
        return subject.input_bytes + sum(size for _, size in subject.outputs.values())
    found = contraction(subject.bound)
    read = () if found is None else found.factors
    arrays = [*incoming.values(), *(leaves[name].array for name in (*_wanted(subject), *read))]
    return sum(int(np.asarray(array).nbytes) for array in arrays)
