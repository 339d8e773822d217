"""The outputs that a dump stored, in the place of a device's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.check.both_sides import BothSides, Reference
from pytest_probe.check.device_call import replayed, settled_on_cpu
from pytest_probe.check.prepare import ran_without_dropout
from pytest_probe.check.resolve import Resolved
from pytest_probe.errors import NoReference, NotRecorded, Unsupported
from pytest_probe.inputs import StoredTensors
from pytest_probe.model.dump import Argument, Call, Record, SizeSpec, TensorSpec, named_tensors
from pytest_probe.model.run import RECORDED, Run
from pytest_probe.numerics.arrays import same_bytes
from pytest_probe.numerics.dtypes import AnyArray

# The kind of such skips, by which reports group them.
NOT_STORED = "no stored tensors"
AFTER_THE_CALL = "in-place input stored after the call"
DROPPED = "dropout inside the recorded call"
# What a dump holds of results that are no tensors; of anything else it keeps no value that could differ.
SCALARS = (bool, int, float, complex, str)


class StoredOutputs(Struct, frozen=True):
    """A record's outputs, and the gradients of its arguments, as files of the dump hold them."""

    record: Record
    call: Call
    files: StoredTensors
    name: str = RECORDED
    runs_again: bool = False
    tells_changes: bool = False

    def replay(self, reference: Reference, resolved: Resolved) -> BothSides:
        """Both sides, under the possible autocast where only that gives the recorded dtypes. Raises Unsupported, and
        RecordError for a file that cannot be used."""
        if ran_without_dropout(reference.notes):
            raise Unsupported("the recorded call dropped elements by chance, which no replay repeats", DROPPED)
        settled, stored = settled_on_cpu(reference, resolved.autocast), dict(self.call.returned())
        missing = sorted(settled.run.outputs.keys() - stored.keys())
        if self.call.partial and missing:
            outputs = {name: value for name, value in settled.run.outputs.items() if name in stored}
            note = f"not judged, because the dump does not have it: {', '.join(missing)}"
            settled = replace(settled, run=replace(settled.run, outputs=outputs), notes=(*settled.notes, note))
        return replayed(settled, self)

    def forward(self, reference: Reference) -> Run:
        return stored_run(self.record, self.call, reference, self.files)

    def backward(self, replay: BothSides) -> Iterator[BothSides]:
        """Those gradients only that the dump stored, with a note on the others that arguments wanted."""
        reference = replay.reference
        assert reference.wanted is not None
        # The dump tells of a gradient for an output that has none here: it is another call.
        pairs = zip(self.call.seeded or (), self.call.gradients or (), strict=True)
        strange = sorted({name for name, spec in pairs if spec is not None} - set(reference.run.differentiable))
        if strange:
            raise NoReference(f"{', '.join(strange)} of the reference cannot be differentiated")
        # Of a tensor that stands at several places autograd may give the whole gradient to one.
        same = Counter(_identity(spec) for _, spec in self.call.tensors())
        once = {name for name, spec in self.call.tensors() if same[_identity(spec)] == 1 or spec.address is None}
        names = reference.wanted.names & {
            name for name, spec in (self.call.outgoing or {}).items() if spec is not None and name in once
        }
        if not names:
            raise Unsupported("no stored gradient belongs to one argument alone", NOT_STORED)
        notes = reference.notes
        others = sorted((self.call.outgoing or {}).keys() - names)
        if others:
            notes += (f"not judged, because the dump does not have their own gradient: {', '.join(others)}",)
        wanted = replace(reference.wanted, names=names)
        yield replace(replay, reference=replace(reference, wanted=wanted, notes=notes))

    def gradients(self, replay: BothSides) -> dict[str, AnyArray]:
        wanted = replay.reference.wanted
        names = frozenset() if wanted is None else wanted.names
        entry = f"{self.record.name}.backward"
        return {
            name: self.files.array(spec, entry, f"output.{place}")
            for place, (name, spec) in enumerate((self.call.outgoing or {}).items())
            if spec is not None and name in names
        }


def check_gradients(call: Call) -> None:
    """Raises Unsupported where the gradients of the arguments were not stored, with the incoming ones."""
    if call.unrecorded:
        raise Unsupported(call.unrecorded, NotRecorded.kind)
    if call.seeded is None and call.outgoing is None:
        raise Unsupported(
            "the dump stores the gradients of the last autograd node, which are not those of the API's arguments",
            "recorded gradients are not the API's",
        )
    for field, specs in (("input", call.gradients), ("output", tuple((call.outgoing or {}).values()))):
        found = list(named_tensors(specs, field))
        place = next((path for path, spec in found if spec.data_name is None and spec.size), "" if found else field)
        if place:
            raise Unsupported(
                f"{place}: no gradient was stored, and --probe-device=recorded judges stored ones", NOT_STORED
            )


def _identity(spec: TensorSpec) -> object:
    return spec.address, spec.dtype, spec.shape, spec.stride


def check_stored(call: Call) -> None:
    """Raises Unsupported where a tensor of the call was not stored."""
    for field, tree in (("input_args", call.args), ("input_kwargs", call.kwargs), ("output", call.outputs)):
        for path, spec in named_tensors(tree, field):
            if spec.data_name is None and spec.size:
                raise Unsupported(
                    f"{path}: no tensor was stored, and --probe-device=recorded judges stored ones", NOT_STORED
                )
    if not any(True for _ in named_tensors(call.outputs, "output")):
        raise Unsupported("output: no tensor was stored, and --probe-device=recorded judges stored ones", NOT_STORED)


def stored_run(record: Record, call: Call, reference: Reference, files: StoredTensors) -> Run:
    """What the recorded call returned. What else it changed is not in a dump.

    Raises RecordError for a file that cannot be used, Unsupported where an argument was stored after the call.
    """
    entry, expected = f"{record.name}.forward", reference.run.outputs
    outputs = {name: _value(value, expected.get(name), files, entry, name) for name, value in call.returned()}
    for name, argument in reference.run.returned.items() if call.surroundings is None else ():
        # An argument that the call changes and that holds the result already was stored too late to be an input.
        if argument in reference.changed and same_bytes(outputs[name], reference.leaves[argument].array):
            raise Unsupported(
                f"{argument} was stored after the in-place call: its file holds what {name}'s holds",
                AFTER_THE_CALL,
            )
    return Run(
        outputs=outputs,
        changed=frozenset(),
        after=lambda name: reference.leaves[name].array,
        returned=dict(reference.run.returned),
        differentiable=reference.run.differentiable,
    )


def _value(value: Argument, expected: Any, files: StoredTensors, entry: str, field: str) -> Any:
    if isinstance(value, TensorSpec):
        if value.data_name is None:
            return np.empty(value.shape, np.asarray(expected).dtype)
        return files.array(value, entry, field)
    if isinstance(value, SizeSpec):
        return list(value.shape)
    return value if isinstance(value, SCALARS) else expected
