"""PaddlePaddle: one call, forward and backward, from arrays to arrays."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import paddle
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.frameworks.paddle.arrays import (
    COMPLEX_OF,
    Tensor,
    dtype_named,
    is_float,
    name_of,
    restrided,
    to_array,
    to_tensor,
)
from pytest_probe.frameworks.paddle.memory import memory_errors
from pytest_probe.frameworks.paddle.results import RESULTS, described
from pytest_probe.frameworks.paddle.rounding import rounding
from pytest_probe.frameworks.paddle.state import OfUser
from pytest_probe.frameworks.python.results import PLAIN
from pytest_probe.frameworks.widened import reference_run
from pytest_probe.model.arguments import Array, Leaf, map_tree
from pytest_probe.model.dump import DeviceSpec, DtypeSpec, SizeSpec
from pytest_probe.model.run import Device, Returned, Run, Steps, Wanted, Way
from pytest_probe.numerics.dtypes import is_complex, is_floating, widen

# Dtypes that quantised products take by their names only.
AS_TEXT = ("kwargs.weight_dtype", "kwargs.compute_dtype")
_core: Any = paddle.base.core


def taken(value: Any, device: Device) -> Any:
    """An argument tree of Paddle's values as `run` takes it; see Framework.take."""
    if isinstance(value, paddle.Tensor):
        array = to_array(device.get(value.detach()))
        return Leaf(array, not value.stop_gradient, None if value.is_contiguous() else tuple(value.strides))
    if isinstance(value, (list, tuple)):
        return (list if isinstance(value, list) else tuple)(taken(item, device) for item in value)
    if isinstance(value, dict):
        return {key: taken(item, device) for key, item in value.items()}
    if isinstance(value, paddle.dtype):
        return DtypeSpec(name_of(value))
    return value


class PaddleBound(Struct):
    """Arguments as Paddle takes them for one way of running, the tensors among them by name, and what they were."""

    args: list[Any]
    kwargs: dict[str, Any]
    tensors: dict[str, Tensor]
    leaves: dict[str, Tensor]
    way: Way
    versions: dict[str, int]


class Binder:
    """Turns an argument tree into what the framework takes, for one way of running. Raises NotImplementedError for a
    way that needs to see more of a call than its operators in float64, which is all that Paddle shows."""

    def __init__(self, way: Way, wanted: Wanted | None) -> None:
        if way.mode is not None or way.jitter is not None or (way.steps is not None and not _shown(way.steps)):
            raise NotImplementedError("Paddle does not show the steps inside its kernels")
        self.way = way
        self.wanted = wanted or Wanted()
        self.tensors: dict[str, Tensor] = {}
        self.leaves: dict[str, Tensor] = {}

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> PaddleBound:
        bound_args: list[Any] = map_tree(list(args), "input", self._leaf)
        bound_kwargs: dict[str, Any] = map_tree(kwargs, "kwargs", self._leaf)
        # What a call writes to has another version afterwards.
        versions = {name: tensor.inplace_version for name, tensor in self.tensors.items()}
        return PaddleBound(bound_args, bound_kwargs, self.tensors, self.leaves, self.way, versions)

    def _leaf(self, value: Any, name: str) -> Any:
        if isinstance(value, Leaf):
            return self._tensor(value, name)
        if isinstance(value, PLAIN):
            return value
        return self._special(value, name)

    def _special(self, value: Any, name: str) -> Any:
        if isinstance(value, DtypeSpec):
            return value.name if name in AS_TEXT else dtype_named(self._dtype(value.name))
        if isinstance(value, DeviceSpec):
            return _place(self.way.place if self.way.device is None else self.way.device.name)
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
        if self.way.device is not None or not (is_floating(array.dtype) or is_complex(array.dtype)):
            return array
        return np.asarray(widen(array).astype(self._dtype(name), copy=False))

    def _tensor(self, leaf: Leaf, name: str) -> Tensor:
        wanted = name in self.wanted.names
        tensor = to_tensor(self._array(leaf.array), wanted and leaf.strides is None)
        if leaf.strides is not None:
            tensor = restrided(tensor, leaf.strides)
        if self.way.device is not None:
            tensor = self.way.device.put(tensor)
        elif self.way.place != "cpu":
            tensor = tensor.to(self.way.place)
        # The leaf keeps its gradient; the call gets the leaf, or a copy that it may write to.
        if wanted:
            tensor = tensor.detach() if not tensor.is_leaf else tensor
            tensor.stop_gradient = False
            self.leaves[name] = tensor
            # Paddle refuses to write to a leaf that wants a gradient; a copy of it may be written to.
            tensor = tensor.clone() if self.wanted.copies else tensor
        self.tensors[name] = tensor
        return tensor


def _shown(steps: Steps) -> bool:
    return steps.fine and not steps.own and steps.dtype == "float32"


def _place(name: str) -> Any:
    return paddle.base.framework._get_paddle_place(name)


@contextlib.contextmanager
def surroundings(way: Way, grad: bool) -> Iterator[None]:
    """State, default dtype, gradient mode, autocast and device of one run; all restored."""
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


def run(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    way: Way,
    wanted: Wanted | None,
) -> Run:
    """Make one call; see Framework.run."""
    bound = bind_function(args, kwargs, way, wanted)
    with surroundings(way, wanted is not None):
        if way.device is None:
            with reference_run(way):
                result = function(*bound.args, **bound.kwargs)
        else:
            result = way.device.call(function, bound.args, bound.kwargs)
    return left(bound, result)


def bind_function(args: Sequence[Any], kwargs: Mapping[str, Any], way: Way, wanted: Wanted | None) -> PaddleBound:
    """The arguments of a call; see Framework.bind."""
    # A copy for an in-place call is a step of its gradient's way.
    with surroundings(replace(way, autocast="", state="fixed", steps=None), wanted is not None):
        return Binder(way, wanted).bind(args, kwargs)


def left(bound: PaddleBound, result: Any) -> Run:
    """What a call on bound arguments left; see Framework.left."""
    outputs = dict(RESULTS.flattened(result))
    bring = _itself if bound.way.device is None and bound.way.place == "cpu" else _brought(bound.way)

    @memory_errors
    def get(tensor: Tensor) -> np.ndarray:
        return to_array(bring(tensor.detach()))

    owners = {id(tensor): name for name, tensor in bound.tensors.items()}
    versions = {name: tensor.inplace_version for name, tensor in bound.tensors.items()}
    tensors = {name: value for name, value in outputs.items() if isinstance(value, paddle.Tensor)}
    return Run(
        outputs={name: get(value) if name in tensors else RESULTS.plain(value) for name, value in outputs.items()},
        changed=frozenset(name for name, version in versions.items() if version != bound.versions[name]),
        after=lambda name: get(bound.tensors[name]),
        returned={name: owners[id(value)] for name, value in outputs.items() if id(value) in owners},
        # Of integers, too, Paddle says that they have a gradient.
        differentiable=tuple(name for name, tensor in tensors.items() if not tensor.stop_gradient and is_float(tensor)),
        handle=(outputs, bound.leaves, bound.way, get, result),
    )


def _itself(tensor: Tensor) -> Tensor:
    return tensor


def _brought(way: Way) -> Callable[[Tensor], Tensor]:
    return way.device.get if way.device is not None else paddle.Tensor.cpu


def returned(run: Run) -> Returned:
    """How the outputs of a run lie on its device; see Framework.returned."""
    outputs, _, way, _, result = run.handle
    return described(result, outputs, way.device)


def would_return(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], way: Way) -> Returned:
    """What a call in its own dtypes returns, whose results stay where they are; see Framework.would_return."""
    bound = bind_function(args, kwargs, way, None)
    with surroundings(way, grad=False):
        result = function(*bound.args, **bound.kwargs)
    return described(result, dict(RESULTS.flattened(result)), way.device)


def gradients(run: Run, seeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Gradients of the wanted arguments; see Framework.gradients."""
    outputs, leaves, way, get, _ = run.handle
    incoming = [seed(seeds[name], outputs[name], way) for name in seeds]
    with surroundings(replace(way, autocast="", steps=None), grad=False):
        found = paddle.grad(
            [outputs[name] for name in seeds],
            list(leaves.values()),
            incoming,
            allow_unused=True,
            retain_graph=False,
        )
    return {name: get(gradient) for name, gradient in zip(leaves, found, strict=True) if gradient is not None}


def seed(array: np.ndarray, output: Tensor, way: Way) -> Tensor:
    """An incoming gradient in the output's own dtype. Another dtype Paddle would take without a word, and of another
    shape its kernels write where no memory is theirs: that raises ValueError."""
    if array.shape != tuple(output.shape):
        raise ValueError(f"an incoming gradient of shape {list(array.shape)} for an output of {list(output.shape)}")
    wanted = name_of(output.dtype)
    same = array.dtype.name == wanted
    tensor = to_tensor(array if same else np.asarray(widen(array)))
    if way.device is not None:
        tensor = way.device.put(tensor)
    elif way.place != "cpu":
        tensor = tensor.to(way.place)
    return tensor if same else tensor.cast(wanted)
