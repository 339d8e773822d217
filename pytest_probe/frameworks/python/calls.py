"""One call, forward and backward, from arrays to arrays, in any framework with a Python API.

`Results` reads what a call returned, `BoundTensors` makes its arguments, and `PythonCalls` runs it, once or repeatedly.
"""

from __future__ import annotations

import dataclasses
import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, ClassVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.frameworks.base import Bound, Repeated, looked_up, reference_run
from pytest_probe.model.device_arrays import Outputs
from pytest_probe.model.run import (
    Arguments,
    Device,
    Layout,
    Leaf,
    MeasuredCall,
    Returned,
    Run,
    Wanted,
    Way,
    map_tree,
    on_reference,
)
from pytest_probe.user_errors import MemoryErrors

# What a call takes, and results hold, as it is.
_PLAIN = (bool, int, float, complex, str, type(None))


class Results(Struct, frozen=True):
    """How one framework's results are read: its type of tensors, the types of shapes that it has, and the types that a
    result may hold besides, which are compared as text. layouts gives what tells the layout of a tensor, of outputs on
    a device, None: on the CPU."""

    tensor: type
    sizes: tuple[type[Iterable[int]], ...]
    names: tuple[type, ...]
    layouts: Callable[[Device | None], Callable[[Any], Layout]]

    def flattened(self, result: Any) -> Iterator[tuple[str, Any]]:
        """Return values by name. A single output counts as a list of one; None is no output."""
        return self._flatten(result, "output", top=True)

    def plain(self, value: Any) -> Any:
        """An output that is no tensor: numbers and text as they are, arrays of NumPy's and its numbers as arrays."""
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
            return np.array(value)
        return list(value) if isinstance(value, self.sizes) else str(value)

    def described(self, result: Any, outputs: Mapping[str, Any], device: Device | None) -> Returned:
        """The structure of a result, and the layouts of the tensors among its outputs."""
        layout = self.layouts(device)
        known = (self.tensor, np.ndarray, np.generic, *self.sizes, *_PLAIN, np.dtype, enum.Enum, *self.names)
        unknown = {name: type(value).__name__ for name, value in outputs.items() if not isinstance(value, known)}
        layouts = {name: layout(value) for name, value in outputs.items() if isinstance(value, self.tensor)}
        return Returned(self._structure(result), layouts, unknown)

    def _flatten(self, value: Any, name: str, top: bool = False) -> Iterator[tuple[str, Any]]:
        inside = self._inside(value)
        if inside is not None:
            for key, item in inside.items():
                yield from self._flatten(item, f"{name}.{key}")
        elif value is not None:
            yield (f"{name}.0" if top else name), value

    def _inside(self, value: Any) -> Mapping[Any, Any] | None:
        """The parts of a list, tuple, dict or dataclass; None for anything else of them."""
        if isinstance(value, self.tensor):
            return None
        if isinstance(value, (list, tuple)) and not isinstance(value, self.sizes):
            return dict(enumerate(value))
        if isinstance(value, Mapping):
            return value
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return None

    def _structure(self, value: Any) -> str:
        inside = self._inside(value)
        if isinstance(value, self.tensor):
            return "tensor"
        if inside is None:
            return type(value).__name__ if value is not None else "None"
        if isinstance(value, (list, tuple)):
            return f"({', '.join(map(self._structure, value))}{',' * (len(value) == 1)})"
        return f"{{{', '.join(f'{key}: {self._structure(item)}' for key, item in sorted(inside.items(), key=str))}}}"


class BoundTensors(ABC):
    """Arguments as a framework takes them for one way of running; by name the tensors among them, the ones that
    get gradients, and how often each had been written to. steps is the mode that rounds the steps of the call."""

    def __init__(self, arguments: Arguments, way: Way, wanted: Wanted | None) -> None:
        self.way = way
        self.wanted = wanted or Wanted()
        self.tensors: dict[str, Any] = {}
        self.leaves: dict[str, Any] = {}
        self.args: list[Any] = map_tree(list(arguments.args), "input", self._leaf)
        self.kwargs: dict[str, Any] = map_tree(arguments.kwargs, "kwargs", self._leaf)
        self.steps = self.rounding()
        # What a call writes to has another version afterwards.
        self.versions = {name: self.version(tensor) for name, tensor in self.tensors.items()}

    def _leaf(self, value: Any, name: str) -> Any:
        if isinstance(value, Leaf):
            self.tensors[name] = tensor = self.tensor(value, name)
            return tensor
        return value if isinstance(value, _PLAIN) else self.special(value, name)

    @abstractmethod
    def tensor(self, leaf: Leaf, name: str) -> Any:
        """The tensor that the call gets. Of a wanted one the leaf, which gets its gradient, is noted in `leaves`."""

    @abstractmethod
    def special(self, value: Any, name: str) -> Any:
        """The tensor of a spec or an array; anything else as it is."""

    @staticmethod
    @abstractmethod
    def version(tensor: Any) -> int:
        """How often the tensor was written to."""

    def rounding(self) -> Any:
        """The mode that rounds the steps of the call; None for no such mode."""
        return None


class PythonCalls(ABC):
    """How a framework makes calls: the methods of base.Calls. What differs between frameworks is abstract. title is
    what messages call the framework."""

    title: ClassVar[str]
    results: ClassVar[Results]
    bound: ClassVar[type[BoundTensors]]
    memory_errors: ClassVar[MemoryErrors]

    @on_reference
    def run(self, function: Callable[..., Any], arguments: Arguments, way: Way, wanted: Wanted | None = None) -> Run:
        with self.memory_errors:
            bound = self.bind(arguments, way, wanted)
            with self.surroundings(way, self.records(wanted), bound.steps), way.entered():
                if way.device is None:
                    with reference_run(way):
                        result = self.reference_result(function, bound.args, bound.kwargs)
                else:
                    # What a user's device is given is the function itself, which it may know.
                    result = way.device.call(looked_up(function), bound.args, bound.kwargs)
            return self.left(bound, result)

    def bind(self, arguments: Arguments, way: Way, wanted: Wanted | None = None) -> BoundTensors:
        with self.memory_errors:
            return self.bound(arguments, way, wanted)

    def left(self, bound: Bound, result: Any) -> Run:
        assert isinstance(bound, BoundTensors)
        outputs = dict(self.results.flattened(result))
        get = partial(self._brought, self.fetch(bound.way))
        owners = {id(tensor): name for name, tensor in bound.tensors.items()}
        tensors = {name: value for name, value in outputs.items() if isinstance(value, self.results.tensor)}
        version, before = bound.version, bound.versions
        left = self.lying(bound.way, get)
        values = {
            name: left(value) if name in tensors else self.results.plain(value) for name, value in outputs.items()
        }
        return Run(
            outputs=Outputs(values) if bound.way.stays else values,
            changed=frozenset(name for name, tensor in bound.tensors.items() if version(tensor) != before[name]),
            after=lambda name: get(bound.tensors[name]),
            returned={name: owners[id(value)] for name, value in outputs.items() if id(value) in owners},
            differentiable=tuple(name for name, tensor in tensors.items() if self.differentiable(tensor)),
            handle=(outputs, bound, get, result),
            left=(lambda name: left(bound.tensors[name])) if bound.way.stays else None,
        )

    def lying(self, way: Way, get: Callable[[Any], np.ndarray]) -> Callable[[Any], Any]:
        """What gives a tensor of such a run as it lies, where it stays on its device; get brings it from there."""
        return get

    def _brought(self, fetch: Callable[[Any], Any], tensor: Any) -> np.ndarray:
        with self.memory_errors:
            return self.array(fetch(self.detached(tensor)))

    def returned(self, run: Run) -> Returned:
        outputs, bound, _, result, *_ = run.handle
        return self.results.described(result, outputs, bound.way.device)

    @on_reference
    def would_return(self, function: Callable[..., Any], arguments: Arguments, way: Way, *, computed: bool) -> Returned:
        with self.memory_errors:
            way = way if computed else replace(way, device=self.shapes_alone())
            bound = self.bind(arguments, way)
            with self.surroundings(way, grad=False):
                result = function(*bound.args, **bound.kwargs)
            return self.results.described(result, dict(self.results.flattened(result)), way.device)

    @on_reference
    def gradients(self, run: Run, seeds: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        outputs, bound, get, _ = run.handle
        with self.memory_errors:
            incoming = [self.seed(seeds[name], outputs[name], bound.way) for name in seeds]
            # Programs go backward outside of autocast, whose casts the graph holds.
            surroundings = self.surroundings(replace(bound.way, autocast="", steps=None), grad=False, steps=bound.steps)
            with surroundings, bound.way.entered():
                found = self.backward([outputs[name] for name in seeds], list(bound.leaves.values()), incoming)
            pairs = zip(bound.leaves, found, strict=True)
            left = self.lying(bound.way, get)
            gradients = {name: left(self.dense(gradient)) for name, gradient in pairs if gradient is not None}
            return Outputs(gradients) if bound.way.stays else gradients

    def take(self, value: Any, device: Device) -> Any:
        with self.memory_errors:
            spec = self.spec(value, device)
        if isinstance(spec, (list, tuple)):
            return (list if isinstance(spec, list) else tuple)(self.take(item, device) for item in spec)
        if isinstance(spec, dict):
            return {key: self.take(item, device) for key, item in spec.items()}
        return spec

    @contextmanager
    def repeated(self, call: MeasuredCall) -> Iterator[Repeated]:
        way, wanted = call.way, call.wanted
        bounds = [self.bind(call.arguments, way, wanted) for _ in range(call.sets)]
        if call.incoming is None:
            assert way.device is not None
            make = way.device.call

            def fresh(value: Any, name: str) -> Any:
                return self.fresh(value) if name in call.writes else value

            def forward(bound: BoundTensors) -> Callable[[], object]:
                trees: tuple[Any, Any] = bound.args, bound.kwargs
                if call.writes:
                    trees = map_tree(bound.args, "input", fresh), map_tree(bound.kwargs, "kwargs", fresh)
                return partial(make, call.function, *trees)

            with self.surroundings(way, self.records(wanted)):
                yield Repeated(bounds, forward, lambda bound: partial(make, _nothing, bound.args, bound.kwargs))
            return
        seed = self.seeding(call)
        with self.surroundings(way, grad=True):
            # Their graphs stay.
            graphs = [self._graph(call, bound, seed) for bound in bounds]
        with self.surroundings(replace(way, autocast=""), grad=False):
            yield Repeated(
                graphs, lambda graph: partial(self.backward_again, *graph), lambda graph: partial(_nothing, *graph)
            )

    def _graph(self, call: MeasuredCall, bound: BoundTensors, seed: Callable[[str, Any], Any]) -> tuple[list[Any], ...]:
        """Outputs, arguments and incoming gradients of one forward run."""
        assert call.way.device is not None
        outputs = dict(self.results.flattened(call.way.device.call(call.function, bound.args, bound.kwargs)))
        found = {name: outputs[name] for name in call.incoming or ()}
        return list(found.values()), list(bound.leaves.values()), [seed(name, output) for name, output in found.items()]

    def reference_result(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What a reference's function gives."""
        return function(*args, **kwargs)

    def shapes_alone(self) -> Device:
        """A device whose tensors have a shape and a dtype, and no values."""
        raise NotImplementedError(f"{self.title} has no tensors of a shape and a dtype alone")

    def records(self, wanted: Wanted | None) -> bool:
        """Does a run that wants these record its graph?"""
        return wanted is not None and wanted.grad

    def detached(self, tensor: Any) -> Any:
        """The tensor apart from its graph."""
        return tensor.detach()

    def dense(self, gradient: Any) -> Any:
        """A gradient whose elements all lie in memory."""
        return gradient

    def seeding(self, call: MeasuredCall) -> Callable[[str, Any], Any]:
        """What gives an output, by its name, the incoming gradient of a call that is made again and again."""
        incoming = call.incoming or {}
        return lambda name, output: self.seed(np.asarray(incoming[name]), output, call.way)

    @abstractmethod
    def surroundings(self, way: Way, grad: bool, steps: Any = None) -> AbstractContextManager[None]:
        """State, default dtype, gradient mode, autocast and step rounding of one run; all restored."""

    @abstractmethod
    def fetch(self, way: Way) -> Callable[[Any], Any]:
        """What brings a tensor of such a run to the CPU."""

    @abstractmethod
    def array(self, tensor: Any) -> np.ndarray:
        """The values of a tensor on the CPU. Raises Unsupported where NumPy has no place for them."""

    @abstractmethod
    def differentiable(self, tensor: Any) -> bool:
        """Does an output have a gradient?"""

    @abstractmethod
    def spec(self, value: Any, device: Device) -> Any:
        """The Leaf of a tensor, the spec of a type of the framework's own; anything else as it is."""

    @abstractmethod
    def seed(self, array: np.ndarray, output: Any, way: Way) -> Any:
        """An incoming gradient, where the output lies and in its dtype."""

    @abstractmethod
    def backward(self, outputs: Sequence[Any], leaves: Sequence[Any], incoming: Sequence[Any]) -> Sequence[Any]:
        """The gradients of the leaves, None for one without; the graph is used up."""

    @abstractmethod
    def backward_again(self, outputs: Sequence[Any], leaves: Sequence[Any], incoming: Sequence[Any]) -> object:
        """The same of a graph that stays."""

    @abstractmethod
    def fresh(self, value: Any) -> Any:
        """A copy of a tensor to write to, laid out alike; anything else as it is."""


def _nothing(*args: object, **kwargs: object) -> None:
    """What is called where the time of calling alone is measured."""
