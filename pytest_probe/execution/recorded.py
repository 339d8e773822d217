"""The outputs that a dump stored, in the place of a device's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from pytest_probe.errors import Unsupported
from pytest_probe.execution.likeness import recorded_leaves, same_bytes
from pytest_probe.execution.replay import Replay
from pytest_probe.frameworks.base import Run
from pytest_probe.inputs import StoredTensors
from pytest_probe.records.model import Argument, Call, Direction, Record, SizeSpec, TensorSpec, tensors

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


def check_direction(direction: Direction) -> None:
    """Raises Unsupported for the backward."""
    if direction == "backward":
        raise Unsupported(
            "a dump stores the gradients of the last autograd node, which are not those of the API's arguments",
            "recorded gradients are not the API's",
        )


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
    for name, argument in replay.expected.returned.items():
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
