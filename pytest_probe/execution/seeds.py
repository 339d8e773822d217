"""Incoming gradients of a case's backward: as recorded, else generated."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_probe.errors import DeviceRaised
from pytest_probe.execution.case import Case
from pytest_probe.execution.replay import Replay
from pytest_probe.inputs.generated import generate, rounded
from pytest_probe.inputs.streams import Streams
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.records.model import TensorSpec


def incoming(case: Case, replay: Replay, seed: int) -> dict[str, AnyArray]:
    """The incoming gradient of every differentiable output: as recorded where it was, else generated.

    An output that the record marks as having got none (null) is left out, unless that leaves nothing.
    """
    names = [name for name in replay.expected.differentiable if name in replay.actual.differentiable]
    if not names:
        raise DeviceRaised("no output of the device can be differentiated; those of the reference can")
    given = dict(zip(_places(replay, names), replay.candidate.arguments.gradients or (), strict=False))
    told = replay.call.seeded is not None
    found: dict[str, AnyArray] = {}
    for name in names:
        output = replay.actual.outputs[name]
        leaf = given.get(name)
        if leaf is not None and leaf.array.shape == output.shape:
            found[name] = leaf.array.astype(output.dtype)
        elif leaf is not None or (name not in given and not told):
            found[name] = _generated(case, name, output, seed)
    return found or {name: _generated(case, name, replay.actual.outputs[name], seed) for name in names}


def _places(replay: Replay, names: Sequence[str]) -> Sequence[str]:
    """The outputs that the recorded gradients belong to; where a dump does not say: all, else those that want one."""
    arrays = list(replay.expected.outputs)
    recorded = replay.candidate.arguments.gradients or ()
    return replay.call.seeded or (names if len(recorded) != len(arrays) else arrays)


def _generated(case: Case, name: str, output: AnyArray, seed: int) -> AnyArray:
    spec = TensorSpec(output.dtype.name, output.shape)
    return rounded(generate(spec, Streams(case.record.name, seed).at(f"grad.{name}")), spec.dtype)
