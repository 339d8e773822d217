"""The backward of a case: incoming gradients, as recorded or generated, and both sides' gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from msgspec.structs import replace

from pytest_probe.check.both_sides import BothSides
from pytest_probe.check.structure import OutputPairs, backward_sides, named_gradients
from pytest_probe.errors import DeviceRaised, NoKernel, NoReference, NotRecorded, Unsupported
from pytest_probe.inputs.draws import RecordStreams
from pytest_probe.inputs.generated import generate_in
from pytest_probe.model.case import Case
from pytest_probe.model.device_arrays import lying
from pytest_probe.model.dump import Call, TensorSpec
from pytest_probe.model.measurement import spending
from pytest_probe.model.run import Arguments
from pytest_probe.numerics.arrays import laid_out
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.user_errors import no_reference

Part = TypeVar("Part")

_GENERATED = "incoming gradients are generated: the dump has none"


def backward_replays(case: Case, replay: BothSides, seed: int) -> Iterator[BothSides]:
    """The replays whose gradients are judged, with their incoming gradients: each is made when it is asked for, since
    a graph takes memory until it has given its gradients. Raises Unsupported where there is no gradient to judge."""
    if replay.reference.call.unrecorded:
        raise Unsupported(replay.reference.call.unrecorded, NotRecorded.kind)
    if replay.reference.wanted is None:
        raise NoReference("no output of the reference can be differentiated")
    if replay.reference.call.gradients == ():
        replay = replay.noted(_GENERATED)
    for part in replay.source.backward(replay):
        reference = part.reference
        names = [name for name in reference.run.differentiable if name in part.actual.differentiable]
        every, outputs = list(reference.run.outputs), lying(part.actual.outputs)
        yield replace(
            part, incoming=incoming(case, reference.call, reference.candidate.arguments, names, every, outputs, seed)
        )


def incoming(
    case: Case,
    call: Call,
    arguments: Arguments,
    names: Sequence[str],
    every: Sequence[str],
    outputs: Mapping[str, Any],
    seed: int,
) -> dict[str, AnyArray]:
    """The incoming gradient of every differentiable output: as recorded where it was, else generated. names are those
    of the outputs that can be differentiated, every those of all. Raises DeviceRaised where names is empty.

    An output that the record marks as having got none (null) is left out, unless that leaves nothing.
    """
    if not names:
        raise DeviceRaised("no output of the device can be differentiated; those of the reference can")
    recorded = arguments.gradients or ()
    # Where a dump does not say which outputs the recorded gradients belong to: to all, else to the outputs that want
    # one.
    given = dict(zip(call.seeded or (names if len(recorded) != len(every) else every), recorded, strict=False))
    given_incoming = call.seeded is not None
    found: dict[str, AnyArray] = {}
    for name in names:
        output, leaf = outputs[name], given.get(name)
        if leaf is not None and leaf.array.shape == output.shape:
            found[name] = laid_out(leaf.array, output.dtype, leaf.strides, leaf.offset)
        elif leaf is not None or (name not in given and not given_incoming):
            found[name] = generated(case, name, output, seed)
    return found or {name: generated(case, name, outputs[name], seed) for name in names}


def generated(case: Case, name: str, output: AnyArray, seed: int) -> AnyArray:
    """The incoming gradient of an output, where none was recorded: of its shape and dtype."""
    spec = TensorSpec(output.dtype.name, output.shape)
    return generate_in(spec, RecordStreams(case.record.name, seed).at(f"grad.{name}"), spec.dtype)


def gradient_sides(replay: BothSides, given: Mapping[str, AnyArray] | None = None) -> list[OutputPairs]:
    """The gradients of both sides in each reading. given: those of the source, whose graph gives them once."""
    readings = list(replay.readings())
    with spending("reference"), no_reference("the gradient in float64"):
        expected = [reading.reference.gradients(replay.incoming) for reading in readings]
    with spending("device"):
        actual = named_gradients(replay.source.gradients(replay) if given is None else given)
    names = replay.reference.wanted.names if replay.reference.wanted is not None else frozenset()
    sides = ({name: value for name, value in side.items() if name in names} for side in expected)
    return [
        backward_sides(reading, actual, named_gradients(side)) for reading, side in zip(readings, sides, strict=True)
    ]


def given_gradients(
    case: Case, replay: BothSides, seed: int, *, alone: bool = False
) -> list[tuple[BothSides, Mapping[str, AnyArray]]]:
    """The replays whose gradients are judged, and the gradients that the source gives for each; alone: what its run
    gave besides is let go."""

    def parts() -> Iterator[tuple[BothSides, Mapping[str, AnyArray]]]:
        for part in backward_replays(case, replay, seed):
            if alone:
                # Of large outputs shapes and dtypes are enough, and their memory is needed.
                part.actual.outputs = {
                    name: np.broadcast_to(np.zeros((), out.dtype), out.shape) if isinstance(out, np.ndarray) else out
                    for name, out in part.actual.outputs.items()
                }
            with spending("device"):
                found = part.source.gradients(part)
            if alone:
                part.actual.release()
            yield part, found

    return unless_refused(parts(), lambda part, words: (part[0].noted(words), part[1]))


def unless_refused(parts: Iterator[Part], noted: Callable[[Part, str], Part]) -> list[Part]:
    """The parts of a backward. The first is what the program asked for; of the others, which it did not ask for, a
    device may have none: noted adds that to the first."""
    found: list[Part] = []
    try:
        found.extend(parts)
    except (DeviceRaised, NoKernel) as error:
        if not found or error.__cause__ is None:
            raise
        words = str(error).split("\n", 1)[0]
        found[0] = noted(found[0], f"gradients that the program did not ask for are not judged: {words}")
    return found


def large_gradients(case: Case, replay: BothSides, seed: int) -> tuple[BothSides, dict[str, AnyArray]]:
    """Of a large call: the replay with its incoming gradient, and the gradients that the source gives for it."""
    parts = given_gradients(case, replay, seed, alone=True)
    first = parts[0][0]
    # Each has a part of what the reference is asked for; it has one output, and so one incoming gradient.
    reference = replay.reference if len(parts) > 1 else first.reference
    found = {name: value for _, given in parts for name, value in given.items()}
    return replace(replay, reference=reference, incoming=first.incoming), found
