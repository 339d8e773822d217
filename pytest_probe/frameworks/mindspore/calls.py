"""MindSpore: one call on its device, forward and backward, from arrays to arrays."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import mindspore
import numpy as np
from msgspec.structs import replace

from pytest_probe.errors import Unsupported
from pytest_probe.frameworks.base import Repeated, looked_up
from pytest_probe.frameworks.mindspore.arrays import (
    FLOATS,
    Tensor,
    dtype_named,
    memory_errors,
    name_of,
    to_array,
    to_tensor,
)
from pytest_probe.frameworks.python.calls import BoundTensors, PythonCalls, Results
from pytest_probe.model.dump import DeviceSpec, DtypeSpec, SizeSpec
from pytest_probe.model.run import Arguments, Array, Device, Layout, Leaf, MeasuredCall, Run, Wanted, Way, map_tree
from pytest_probe.numerics.arrays import same_bytes
from pytest_probe.numerics.dtypes import numpy_dtype


def _layouts(device: Device | None) -> Callable[[Any], Layout]:
    place = mindspore.get_context("device_target")
    return lambda tensor: Layout(
        name_of(tensor.dtype), str(tensor.device), str(tensor.device).startswith(place), tuple(tensor.stride())
    )


class MindSporeBound(BoundTensors):
    """With the values that the tensors had, since not every kernel that writes to a tensor says so."""

    def __init__(self, arguments: Arguments, way: Way, wanted: Wanted | None) -> None:
        if way.autocast:
            raise Unsupported("MindSpore has no autocast of a single call", "no autocast")
        self.arrays: dict[str, np.ndarray] = {}
        super().__init__(arguments, way, wanted)

    @staticmethod
    def version(tensor: Tensor) -> int:
        return int(tensor._version)

    def special(self, value: Any, name: str) -> Any:
        if isinstance(value, DtypeSpec):
            return dtype_named(value.name)
        if isinstance(value, DeviceSpec):
            return str(mindspore.get_context("device_target"))
        if isinstance(value, SizeSpec):
            return value.shape
        return value.array.copy() if isinstance(value, Array) else value

    def tensor(self, leaf: Leaf, name: str) -> Tensor:
        # Strides stay behind: MindSpore makes tensors in order.
        tensor = to_tensor(leaf.array)
        self.arrays[name] = leaf.array
        if name in self.wanted.names:
            self.leaves[name] = tensor
        return tensor


class MindSporeCalls(PythonCalls):
    """Gradients are those of a function of the wanted tensors, which makes the call once more: MindSpore keeps no graph
    of what ran."""

    title = "MindSpore"
    results = Results(mindspore.Tensor, (), (mindspore.Type,), _layouts)
    bound = MindSporeBound
    memory_errors = memory_errors
    array = staticmethod(to_array)

    def run(self, function: Callable[..., Any], arguments: Arguments, way: Way, wanted: Wanted | None = None) -> Run:
        ran = partial(self._ran, function, way, wanted)
        try:
            return ran(arguments)
        except TypeError as error:
            # Dumps tell no tuples from lists, and some functions take tuples only.
            if not any(isinstance(value, list) for value in (*arguments.args, *arguments.kwargs.values())):
                raise
            with contextlib.suppress(TypeError):
                args = tuple(map(_as_tuple, arguments.args))
                kwargs = {name: _as_tuple(value) for name, value in arguments.kwargs.items()}
                return ran(Arguments(args, kwargs, None))
            raise error

    def _ran(self, function: Callable[..., Any], way: Way, wanted: Wanted | None, arguments: Arguments) -> Run:
        assert way.device is not None
        made = partial(way.device.call, looked_up(function))
        with self.memory_errors:
            bound = self.bind(arguments, way, wanted)
            run = self.left(bound, made(bound.args, bound.kwargs))
            again = partial(_outputs, self, made, partial(self.bind, arguments, way, wanted))
            differentiable = run.differentiable if bound.leaves else ()
            return replace(run, differentiable=differentiable, handle=(*run.handle, again))

    def left(self, bound: Any, result: Any) -> Run:
        run = super().left(bound, result)
        changed = (name for name in bound.tensors if not same_bytes(run.after(name), bound.arrays[name]))
        return replace(run, changed=run.changed | frozenset(changed))

    def gradients(self, run: Run, seeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        outputs, bound, get, _, again = run.handle
        with self.memory_errors:
            incoming = tuple(self.seed(seeds[name], outputs[name], bound.way) for name in seeds)
            names = tuple(bound.leaves)

            def of_leaves(*leaves: Tensor) -> Any:
                return again(tuple(seeds), names, *leaves)

            # One that is kept would keep the function, and so the tensors.
            gradient_of = mindspore.ops.GradOperation(get_all=True, sens_param=True)
            leaves = [to_tensor(bound.arrays[name]) for name in names]
            found = gradient_of(of_leaves)(*leaves, incoming if len(incoming) > 1 else incoming[0])
            return {name: get(gradient) for name, gradient in zip(names, found, strict=True)}

    @contextlib.contextmanager
    def repeated(self, call: MeasuredCall) -> Iterator[Repeated]:
        if call.incoming is not None:
            raise Unsupported("MindSpore computes no gradient apart from its forward", "not timed")
        with super().repeated(call) as found:
            yield found

    def surroundings(self, way: Way, grad: bool, steps: object = None) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def fetch(self, way: Way) -> Callable[[Tensor], Tensor]:
        return lambda tensor: tensor

    def detached(self, tensor: Tensor) -> Tensor:
        return tensor

    def differentiable(self, tensor: Tensor) -> bool:
        return name_of(tensor.dtype) in FLOATS

    def spec(self, value: Any, device: Device) -> Any:
        if isinstance(value, mindspore.Tensor):
            return Leaf(to_array(value), name_of(value.dtype) in FLOATS)
        return DtypeSpec(name_of(value)) if isinstance(value, mindspore.Type) else value

    def seed(self, array: np.ndarray, output: Tensor, way: Way) -> Tensor:
        if array.shape != tuple(output.shape):
            raise ValueError(f"an incoming gradient of shape {list(array.shape)} for an output of {list(output.shape)}")
        return to_tensor(array.astype(numpy_dtype(name_of(output.dtype)), copy=False))

    def backward(self, outputs: Sequence[Any], leaves: Sequence[Any], incoming: Sequence[Any]) -> Sequence[Any]:
        raise NotImplementedError("MindSpore keeps no graph")

    def backward_again(self, outputs: Sequence[Any], leaves: Sequence[Any], incoming: Sequence[Any]) -> object:
        raise NotImplementedError("MindSpore keeps no graph")

    def fresh(self, value: Any) -> Any:
        return to_tensor(to_array(value)) if isinstance(value, mindspore.Tensor) else value


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value


def _outputs(
    calls: MindSporeCalls,
    made: Callable[[Any, Any], Any],
    bind: Callable[[], BoundTensors],
    wanted: Sequence[str],
    names: Sequence[str],
    *leaves: Tensor,
) -> Any:
    """The wanted outputs of a call as a function of the tensors of these names."""
    given, bound = dict(zip(names, leaves, strict=True)), bind()

    def placed(value: Any, name: str) -> Any:
        return given.get(name, value)

    result = made(map_tree(bound.args, "input", placed), map_tree(bound.kwargs, "kwargs", placed))
    found = dict(calls.results.flattened(result))
    outputs = tuple(found[name] for name in wanted)
    return outputs if len(outputs) > 1 else outputs[0]
