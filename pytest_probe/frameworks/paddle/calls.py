"""PaddlePaddle: one call, forward and backward, from arrays to arrays."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import paddle
from msgspec.structs import replace

from pytest_probe.frameworks.paddle.arrays import (
    COMPLEX_OF,
    SIZES,
    Tensor,
    dtype_named,
    is_float,
    name_of,
    restrided,
    to_array,
    to_tensor,
)
from pytest_probe.frameworks.paddle.devices import memory_errors
from pytest_probe.frameworks.paddle.rounding import rounding
from pytest_probe.frameworks.paddle.state import OfUser
from pytest_probe.frameworks.python.calls import BoundTensors, PythonCalls, Results
from pytest_probe.model.dump import DeviceSpec, DtypeSpec, SizeSpec
from pytest_probe.model.run import Arguments, Array, Device, Layout, Leaf, Wanted, Way
from pytest_probe.numerics.arrays import layout
from pytest_probe.numerics.dtypes import is_complex, is_floating, is_inexact, widen


def _layouts(device: Device | None) -> Callable[[Any], Layout]:
    place = str(paddle.CPUPlace() if device is None else device.put(paddle.empty([0])).place)
    return lambda tensor: Layout(
        name_of(tensor.dtype), str(tensor.place), str(tensor.place) == place, tuple(tensor.strides)
    )


# Dtypes that quantised products take by their names only.
_AS_TEXT = ("kwargs.weight_dtype", "kwargs.compute_dtype")


class PaddleBound(BoundTensors):
    """Raises NotImplementedError for a way that needs to see more of a call than its operators in float64, which is all
    that Paddle shows."""

    def __init__(self, arguments: Arguments, way: Way, wanted: Wanted | None) -> None:
        steps = way.steps
        shown = steps is None or (steps.fine and not steps.own and steps.dtype == "float32")
        if way.mode is not None or way.jitter is not None or not shown:
            raise NotImplementedError("Paddle does not show the steps inside its kernels")
        super().__init__(arguments, way, wanted)

    @staticmethod
    def version(tensor: Tensor) -> int:
        return int(tensor.inplace_version)

    def special(self, value: Any, name: str) -> Any:
        if isinstance(value, DtypeSpec):
            return value.name if name in _AS_TEXT else dtype_named(self._dtype(value.name))
        if isinstance(value, DeviceSpec):
            place = self.way.place if self.way.device is None else self.way.device.name
            return paddle.base.framework._get_paddle_place(place)
        if isinstance(value, SizeSpec):
            return list(value.shape)
        if isinstance(value, Array):
            return self._array(value.array)
        return value

    def _dtype(self, name: str) -> str:
        if self.way.device is not None:
            return name
        if is_complex(name):
            return COMPLEX_OF[self.way.dtype]
        return self.way.dtype if is_floating(name) else name

    def _array(self, array: np.ndarray) -> np.ndarray:
        """The values of an argument in the dtype of the run."""
        name = array.dtype.name
        if self.way.device is not None or not is_inexact(array.dtype):
            return array
        return np.asarray(widen(array).astype(self._dtype(name), copy=False))

    def tensor(self, leaf: Leaf, name: str) -> Tensor:
        wanted = name in self.wanted.names
        tensor = to_tensor(self._array(leaf.array), wanted and leaf.strides is None)
        if leaf.strides is not None:
            tensor = restrided(tensor, leaf.strides)
        if self.way.device is not None:
            tensor = self.way.device.put(tensor)
        elif self.way.place != "cpu":
            tensor = tensor.to(self.way.place)
        if self.way.placing is not None:
            tensor = self.way.placing(name, tensor)
        # The leaf keeps its gradient; the call gets the leaf, or a copy that it may write to.
        if wanted:
            tensor = tensor.detach() if not tensor.is_leaf else tensor
            tensor.stop_gradient = False
            self.leaves[name] = tensor
            # Paddle refuses to write to a leaf that wants a gradient; a copy of it may be written to.
            tensor = tensor.clone() if self.wanted.copies else tensor
        return tensor


class PaddleCalls(PythonCalls):
    """One run at a time: Paddle's backward has one state for all threads."""

    title = "Paddle"
    results = Results(paddle.Tensor, SIZES, (paddle.dtype,), _layouts)
    bound = PaddleBound
    memory_errors = memory_errors
    array = staticmethod(to_array)

    @contextlib.contextmanager
    def surroundings(self, way: Way, grad: bool, steps: object = None) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            if way.state != "fixed":
                stack.enter_context(OfUser(way.state))
            default, had_grad = paddle.get_default_dtype(), paddle.is_grad_enabled()
            tracer = paddle.base.framework._dygraph_tracer()
            if way.autocast:
                stack.enter_context(paddle.amp.auto_cast(dtype=way.autocast))
            stack.enter_context(_on_device(way.place if way.device is None else way.device.name))
            stack.enter_context(rounding(way.steps))
            try:
                tracer._has_grad = grad
                if way.default or way.dtype:
                    paddle.set_default_dtype(way.default or way.dtype)
                yield
            finally:
                tracer._has_grad = had_grad
                paddle.set_default_dtype(default)

    def bind(self, arguments: Arguments, way: Way, wanted: Wanted | None = None) -> BoundTensors:
        # A copy for an in-place call is a step of its gradient's way.
        with self.surroundings(replace(way, autocast="", state="fixed", steps=None), wanted is not None):
            return super().bind(arguments, way, wanted)

    def records(self, wanted: Wanted | None) -> bool:
        return wanted is not None

    def fetch(self, way: Way) -> Callable[[Tensor], Tensor]:
        if way.device is not None:
            return way.device.get
        return (lambda tensor: tensor) if way.place == "cpu" else paddle.Tensor.cpu

    def differentiable(self, tensor: Tensor) -> bool:
        # Of integers, too, Paddle says that they have a gradient.
        return not tensor.stop_gradient and is_float(tensor)

    def spec(self, value: Any, device: Device) -> Any:
        if isinstance(value, paddle.Tensor):
            array = to_array(device.get(value.detach()))
            return Leaf(array, not value.stop_gradient, None if value.is_contiguous() else tuple(value.strides))
        return DtypeSpec(name_of(value)) if isinstance(value, paddle.dtype) else value

    def seed(self, array: np.ndarray, output: Tensor, way: Way) -> Tensor:
        """Another dtype Paddle would take without a word, and of another shape its kernels write where no memory is
        theirs: that raises ValueError."""
        if array.shape != tuple(output.shape):
            raise ValueError(f"an incoming gradient of shape {list(array.shape)} for an output of {list(output.shape)}")
        wanted = name_of(output.dtype)
        same = array.dtype.name == wanted
        tensor, (strides, _) = to_tensor(array if same else np.asarray(widen(array))), layout(array)
        tensor = tensor if same else tensor.cast(wanted)
        tensor = tensor if strides is None else restrided(tensor, strides)
        if way.device is not None:
            return way.device.put(tensor)
        return tensor if way.place == "cpu" else tensor.to(way.place)

    def backward(self, outputs: Sequence[Any], leaves: Sequence[Any], incoming: Sequence[Any]) -> Sequence[Any]:
        found: Sequence[Any] = paddle.grad(outputs, leaves, incoming, allow_unused=True, retain_graph=False)
        return found

    def backward_again(self, outputs: Sequence[Any], leaves: Sequence[Any], incoming: Sequence[Any]) -> object:
        return paddle.grad(outputs, leaves, incoming, retain_graph=True, allow_unused=True)

    def fresh(self, value: Any) -> Any:
        return value.clone() if isinstance(value, paddle.Tensor) else value


@contextlib.contextmanager
def _on_device(name: str) -> Iterator[None]:
    """Where what a call makes of no tensor is made."""
    before = paddle.device.get_device()
    if name == before.removesuffix(":0") or name == before:
        yield
        return
    try:
        paddle.device.set_device(name)
    except ValueError:  # a device of a user's own, with tensors on the CPU
        yield
        return
    try:
        yield
    finally:
        paddle.device.set_device(before)
