"""The outputs that a dump stored, in the place of a device's."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from pytest_probe.errors import NotRecorded, Unsupported
from pytest_probe.execution.likeness import recorded_leaves, same_bytes
from pytest_probe.execution.replay import Replay
from pytest_probe.frameworks.base import Run
from pytest_probe.inputs import StoredTensors
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.records.model import Argument, Call, Record, SizeSpec, TensorSpec, tensors

RECORDED = "recorded"
NOT_STORED = "no stored tensors"
PLAIN = (bool, int, float, complex, str)


class Recorded:
    """Stands for the device that a dump was recorded on. Nothing runs there."""

    name = RECORDED

    def put(self, tensor: Any) -> NoReturn:
        raise Unsupported("nothing runs on the device that the dump was recorded on")

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> NoReturn:
        raise Unsupported("nothing runs on the device that the dump was recorded on")

    def get(self, tensor: Any) -> NoReturn:
        raise Unsupported("nothing runs on the device that the dump was recorded on")


def check_gradients(call: Call) -> None:
    """Raises Unsupported where the gradients of the arguments were not stored, with those that came in."""
    if call.unrecorded:
        raise Unsupported(call.unrecorded, NotRecorded.kind)
    if call.seeded is None and call.outgoing is None:
        raise Unsupported(
            "the dump stores the gradients of the last autograd node, which are not those of the API's arguments",
            "recorded gradients are not the API's",
        )
    for field, specs in (("input", call.gradients), ("output", tuple((call.outgoing or {}).values()))):
        found = list(tensors(specs, field))
        place = next((path for path, spec in found if spec.data_name is None and spec.size), "" if found else field)
        if place:
            raise Unsupported(
                f"{place}: no gradient was stored, and --probe-device=recorded judges stored ones", NOT_STORED
            )


def judged_gradients(call: Call) -> frozenset[str]:
    """The arguments whose stored gradients are theirs alone: of a tensor that stands at several places autograd may
    give the whole gradient to one."""
    same = Counter(_identity(spec) for _, spec in _arguments(call))
    once = {name for name, spec in _arguments(call) if same[_identity(spec)] == 1 or spec.address is None}
    return frozenset(name for name, spec in (call.outgoing or {}).items() if spec is not None and name in once)


def seeded_outputs(call: Call) -> frozenset[str]:
    """The outputs to which a gradient came."""
    pairs = zip(call.seeded or (), call.gradients or (), strict=True)
    return frozenset(name for name, spec in pairs if spec is not None)


def stored_gradients(record: Record, call: Call, names: frozenset[str], files: StoredTensors) -> dict[str, AnyArray]:
    """The gradients that the arguments of these names got. Raises RecordError for a file that cannot be used."""
    entry = f"{record.name}.backward"
    return {
        name: files.array(spec, entry, f"output.{place}")
        for place, (name, spec) in enumerate((call.outgoing or {}).items())
        if spec is not None and name in names
    }


def _arguments(call: Call) -> Iterator[tuple[str, TensorSpec]]:
    return itertools.chain(tensors(call.args, "input"), tensors(call.kwargs, "kwargs"))


def _identity(spec: TensorSpec) -> object:
    return spec.address, spec.dtype, spec.shape, spec.stride


def check_stored(call: Call) -> None:
    """Raises Unsupported where a tensor of the call was not stored."""
    for field, tree in (("input_args", call.args), ("input_kwargs", call.kwargs), ("output", call.outputs)):
        for path, spec in tensors(tree, field):
            if spec.data_name is None and spec.size:
                raise Unsupported(
                    f"{path}: no tensor was stored, and --probe-device=recorded judges stored ones", NOT_STORED
                )
    if not any(True for _ in tensors(call.outputs, "output")):
        raise Unsupported("output: no tensor was stored, and --probe-device=recorded judges stored ones", NOT_STORED)


def stored_run(record: Record, call: Call, replay: Replay, files: StoredTensors) -> Run:
    """What the recorded call returned. What it changed beside that is not in a dump.

    Raises RecordError for a file that cannot be used, Unsupported where an argument was stored after the call.
    """
    outputs = dict(_outputs(record, call, replay, files))
    for name, argument in replay.expected.returned.items() if call.surroundings is None else ():
        if argument in replay.changed and same_bytes(outputs[name], replay.leaves[argument].array):
            raise Unsupported(
                f"{argument} was stored after the in-place call: its file holds what {name}'s holds",
                "in-place input stored after the call",
            )
    return Run(
        outputs=outputs,
        changed=frozenset(),
        after=lambda name: replay.leaves[name].array,
        returned=dict(replay.expected.returned),
        differentiable=replay.expected.differentiable,
    )


def _outputs(record: Record, call: Call, replay: Replay, files: StoredTensors) -> Iterator[tuple[str, Any]]:
    for name, value in recorded_leaves(call):
        yield name, _value(value, replay.expected.outputs.get(name), files, f"{record.name}.forward", name)


def _value(value: Argument, expected: Any, files: StoredTensors, entry: str, field: str) -> Any:
    if isinstance(value, TensorSpec):
        if value.data_name is None:
            return np.empty(value.shape, np.asarray(expected).dtype)
        return files.array(value, entry, field)
    if isinstance(value, SizeSpec):
        return list(value.shape)
    return value if isinstance(value, PLAIN) else expected
