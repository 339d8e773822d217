"""The call of a case that was checked, to be made again: on other values, in other memory, by another function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.check import Case, CaseOutcome
from pytest_probe.check.both_sides import BothSides
from pytest_probe.check.device_call import DeviceSource
from pytest_probe.check.engines import Engines
from pytest_probe.check.structure import named_gradients
from pytest_probe.errors import DeviceRaised, NoKernel, Unsupported
from pytest_probe.frameworks.base import Framework
from pytest_probe.model.run import Arguments, Leaf, Run, Wanted, with_leaves
from pytest_probe.numerics.dtypes import AnyArray, BoolArray

Results: TypeAlias = Mapping[str, AnyArray]
Leaves: TypeAlias = Mapping[str, Leaf]
Placing: TypeAlias = Callable[[str, Any], Any]
Inside: TypeAlias = Callable[[], AbstractContextManager[Any]]


# The kind of a question that cannot be asked of a call.
LEFT_OUT = "not checked"
_NUMBERS = (np.ndarray, bool, float, complex)


class DifferingOutput(Struct, frozen=True):
    """An output of two calls that differs: where, and what both gave; where is None for shapes or dtypes."""

    name: str
    wanted: AnyArray
    found: AnyArray
    where: BoolArray | None

    @property
    def description(self) -> str:
        if self.where is None:
            sides = (f"{side.dtype.name}{list(side.shape)}" for side in (self.found, self.wanted))
            return f"{self.name}: {' instead of '.join(sides)}"
        return f"{self.name}: {int(np.count_nonzero(self.where)):,} of {self.where.size:,} elements differ"


def bits_apart(wanted: AnyArray, found: AnyArray) -> BoolArray:
    """Which elements of two arrays of one dtype and shape have other bits; NaN is NaN, whatever its bits."""
    width = wanted.dtype.itemsize
    one, other = (np.ascontiguousarray(side).view(np.uint8).reshape(*wanted.shape, width) for side in (wanted, found))
    differ: BoolArray = np.asarray((one != other).any(axis=-1))
    if differ.any() and wanted.dtype.kind in "fcV":
        differ &= ~((wanted != wanted) & (found != found))
    return differ


def kept(results: Results) -> dict[str, AnyArray]:
    """What stays where the memory of the call's tensors is used again."""
    return {name: np.array(value) for name, value in results.items()}


class Call:
    """unsteady are the elements of outputs that depend on memory which is not the call's, or on chance."""

    def __init__(self, checked: CaseOutcome, engines: Engines) -> None:
        replay = checked.forward if isinstance(checked.forward, BothSides) else None
        if checked.case.direction == "backward" or replay is None:
            assert checked.worst is not None
            replay = checked.worst.replay
        self.case: Case = checked.case
        self.replay, self.engines = replay, engines
        self.unsteady: dict[str, BoolArray] = {}

    @property
    def framework(self) -> Framework:
        return self.replay.reference.framework

    @property
    def source(self) -> DeviceSource:
        """Raises Unsupported for what a test made of the arguments."""
        if not isinstance(self.replay.source, DeviceSource):
            raise Unsupported("the test made the call itself, and cannot be asked for another one", LEFT_OUT)
        return self.replay.source

    @property
    def arguments(self) -> Arguments:
        return self.replay.reference.candidate.arguments

    @property
    def leaves(self) -> Leaves:
        return self.arguments.tensors

    @property
    def backward(self) -> bool:
        return self.case.direction == "backward"

    @cached_property
    def paths(self) -> Mapping[str, str]:
        """Where each tensor argument stands, by its parameter's name: the API's, or that of a test's function."""
        if self.case.pair is None or self.case.record.api:
            return self.replay.reference.bound.paths
        names = parameters(self.case.pair.function)[: len(self.arguments.args)]
        by_name = {name: f"kwargs.{name}" for name in self.arguments.kwargs}
        return {name: f"input.{place}" for place, name in enumerate(names)} | by_name

    def argument(self, name: str) -> Any:
        """An argument of the call that is no tensor, by its parameter's name."""
        return self.replay.reference.bound.argument(name)

    @property
    def like(self) -> dict[str, AnyArray]:
        """Arrays of the shapes and dtypes of what the call gives, but for its own arguments."""
        if self.backward:
            wanted = self.wanted
            return {name: self.leaves[name].array for name in (() if wanted is None else wanted.names)}
        actual = self.replay.actual
        return {
            name: value
            for name, value in actual.outputs.items()
            if isinstance(value, np.ndarray) and name not in actual.returned
        }

    @cached_property
    def base(self) -> dict[str, AnyArray]:
        """What the call gives. Raises what the device raises."""
        return kept(self.results())

    @cached_property
    def wanted(self) -> Wanted | None:
        """The recorded state, where the call runs in it."""
        reference = self.replay.reference
        state = reference.wanted if self.backward else reference.recorded_state
        if state == reference.wanted:
            return state
        try:
            self.run(wanted=state)
        except (DeviceRaised, NoKernel):
            return reference.wanted
        return state

    def run(
        self,
        arguments: Arguments | None = None,
        function: Callable[..., Any] | None = None,
        placing: Placing | None = None,
        wanted: Wanted | None = None,
        inside: Inside = nullcontext,
    ) -> Run:
        """Make the call on the device, inside a context that begins when all arguments are there. wanted: which
        arguments require grad. Raises NoKernel, DeviceRaised, HookFailed or MemoryError."""
        reference = self.replay.reference
        arguments = arguments or self.arguments
        way = replace(reference.way_under_test(self.engines.device), placing=placing, inside=inside)
        with self.source.running():
            return self.framework.run(function or reference.candidate.on_device, arguments, way, wanted)

    def results(
        self,
        leaves: Leaves | None = None,
        incoming: Mapping[str, AnyArray] | None = None,
        placing: Placing | None = None,
        inside: Inside = nullcontext,
    ) -> dict[str, AnyArray]:
        """Outputs and changed arguments of the call, or its gradients, by name."""
        arguments = self.arguments if leaves is None else with_leaves(self.arguments, leaves)
        run = self.run(arguments, placing=placing, wanted=self.wanted, inside=inside)
        if not self.backward:
            return outputs_of(run)
        with self.source.running():
            found = self.framework.gradients(run, self.replay.incoming if incoming is None else incoming)
        return named_gradients(found)

    def expected(self, leaves: Leaves, incoming: Mapping[str, AnyArray] | None = None) -> dict[str, AnyArray]:
        """What float64 gives for other values. Raises whatever it raises."""
        reference = self.replay.reference
        run = reference.again(leaves, reference.way, reference.wanted if self.backward else None)
        if not self.backward:
            return outputs_of(run)
        seeds = self.replay.incoming if incoming is None else incoming
        return named_gradients(self.framework.gradients(run, seeds))

    def apart(self, found: Results, wanted: Results | None = None) -> Iterator[DifferingOutput]:
        """What differs between two calls, but for what is unsteady."""
        for name, value in (self.base if wanted is None else wanted).items():
            other = found.get(name)
            if other is None:
                continue
            if value.shape != other.shape or value.dtype != other.dtype:
                yield DifferingOutput(name, value, other, None)
                continue
            differ = bits_apart(value, other)
            if name in self.unsteady and self.unsteady[name].shape == differ.shape:
                differ &= ~self.unsteady[name]
            if differ.any():
                yield DifferingOutput(name, value, other, differ)

    def leave_out(self, apart: DifferingOutput) -> None:
        """Say no more of elements that differ."""
        where = np.ones(apart.wanted.shape, bool) if apart.where is None else apart.where
        self.unsteady[apart.name] = self.unsteady.get(apart.name, np.zeros(where.shape, bool)) | where


def outputs_of(run: Run) -> dict[str, AnyArray]:
    """Numbers among the return values, and what the call wrote to."""
    found = {name: np.asarray(value) for name, value in run.outputs.items() if isinstance(value, _NUMBERS)}
    returned = set(run.returned.values())
    return found | {name: run.after(name) for name in run.changed if name not in returned}


def parameters(function: Callable[..., Any]) -> list[str]:
    """Their names; none of a builtin that tells none."""
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []
