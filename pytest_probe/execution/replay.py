"""One record made runnable, and what both sides gave."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from pytest_probe.execution.arguments import default_dtype, with_leaves
from pytest_probe.execution.likeness import reference_array, same_bytes
from pytest_probe.execution.products import Product
from pytest_probe.frameworks.base import Device, Framework, Leaf, Run, Wanted, Way
from pytest_probe.inputs import Arguments
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.records.model import Call

Origin: TypeAlias = Literal["run", "test", "dump"]
REFERENCE = Way(dtype="float64")
NO_CALL = Call((), {}, None, None)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One reading of the record: a function for each side, and the arguments, lists as tuples or not."""

    path: str
    on_device: Callable[..., Any]
    reference: Callable[..., Any]
    arguments: Arguments
    inplace: bool
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Replay:
    """A record's forward run on the device and in the reference, kept for its backward item.

    leaves holds the arguments' arrays by name ("input.0", "kwargs.weight"); autocast is the dtype of the autocast
    that the recorded dtypes call for, "" for none; narrow tells that it rounds wider inputs, inside that no output's
    dtype shows it. rounded is another reading of the call: some kernels round a Python float to the 16-bit dtype of
    the tensors (x > 0.1 on a CPU), others don't.
    origin tells where the device's side comes from: a run made here, a call that a test made, a dump's stored outputs.
    reference is how the reference is run. product: too large for a reference in full; expected is that of a corner.
    """

    framework: Framework
    device: Device
    candidate: Candidate
    call: Call
    leaves: dict[str, Leaf]
    actual: Run
    expected: Run
    wanted: Wanted | None
    autocast: str = ""
    narrow: bool = False
    inside: bool = False
    notes: tuple[str, ...] = ()
    rounded: tuple[Candidate, Run] | None = None
    origin: Origin = "run"
    reference: Way = REFERENCE
    product: Product | None = None
    _changed: frozenset[str] | None = None
    seeds: dict[str, AnyArray] = field(default_factory=dict)

    def readings(self) -> Iterator[Replay]:
        """Itself, and the other reading. The device's results tell which one it is, in each direction."""
        yield self
        if self.rounded is not None:
            notes = (*self.notes, "Python floats rounded to the tensors' dtype, as the device does")
            candidate, expected = self.rounded
            other = (self.candidate, self.expected)
            yield replace(self, candidate=candidate, expected=expected, notes=notes, rounded=other, _changed=None)

    @property
    def changed(self) -> frozenset[str]:
        """The arguments that the reference changed: not every kernel that writes to one says so."""
        if self._changed is None:
            silent = (
                name
                for name, leaf in self.leaves.items()
                if name not in self.expected.changed
                and not same_bytes(self.expected.after(name), reference_array(leaf))
            )
            self._changed = self.expected.changed.union(silent)
        return self._changed

    def reference_run(self, leaves: Mapping[str, Leaf], way: Way, wanted: Wanted | None) -> Run:
        """The reference's call again, on other values of the same arguments."""
        arguments = with_leaves(self.candidate.arguments, leaves)
        return self.framework.run(self.candidate.reference, arguments.args, arguments.kwargs, way, wanted)

    def device_run(self, device: Device, wanted: Wanted | None = None) -> Run:
        """The call in the case's own dtypes on a device."""
        return self._run(self.candidate.on_device, device, wanted)

    def witness_run(self, device: Device, wanted: Wanted | None = None) -> Run:
        """The reference's call in the case's own dtypes on a device: what users put in the device's place stays out."""
        return self._run(self.candidate.reference, device, wanted)

    def _run(self, function: Callable[..., Any], device: Device, wanted: Wanted | None) -> Run:
        arguments = self.candidate.arguments
        way = Way(device=device, autocast=self.autocast, default=default_dtype(self.call))
        return self.framework.run(function, arguments.args, arguments.kwargs, way, wanted)
