"""PyTorch: one call, forward and backward, from arrays to arrays."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.frameworks.python.results import PLAIN
from pytest_probe.frameworks.torch.arrays import (
    TORCH_COMPLEX,
    copied,
    laid_out,
    to_array,
    to_tensor,
    to_wide_tensor,
    widened,
)
from pytest_probe.frameworks.torch.autocast import KernelsMode
from pytest_probe.frameworks.torch.backward import backward
from pytest_probe.frameworks.torch.cpu16 import cpu_kernels
from pytest_probe.frameworks.torch.device_modes import emulated
from pytest_probe.frameworks.torch.memory import memory_errors
from pytest_probe.frameworks.torch.results import RESULTS, described
from pytest_probe.frameworks.torch.rounding import StepsMode
from pytest_probe.frameworks.torch.safety import check_backward
from pytest_probe.frameworks.torch.state import OfUser
from pytest_probe.frameworks.widened import reference_run
from pytest_probe.model.arguments import Array, Leaf, map_tree
from pytest_probe.model.dump import DeviceSpec, DtypeSpec, MemoryFormatSpec, SizeSpec
from pytest_probe.model.run import Device, Returned, Run, Steps, Wanted, Way


def place(device: Device) -> torch.device:
    """Where torch has the tensors of a device: on the CPU where a user's own has a name that torch does not know."""
    try:
        return torch.device(device.name)
    except RuntimeError:
        return torch.device("cpu")


def taken(value: Any, device: Device) -> Any:
    """An argument tree of torch's values as `run` takes it; see Framework.take."""
    if isinstance(value, torch.Tensor):
        array = to_array(device.get(value.detach()))  # raises for a sparse tensor, which has no strides
        return Leaf(array, value.requires_grad, None if value.is_contiguous() else value.stride())
    if isinstance(value, torch.Size):
        return SizeSpec(tuple(value))
    if isinstance(value, (list, tuple)):
        return (list if isinstance(value, list) else tuple)(taken(item, device) for item in value)
    if isinstance(value, dict):
        return {key: taken(item, device) for key, item in value.items()}
    for kind, spec in ((torch.dtype, DtypeSpec), (torch.device, DeviceSpec), (torch.memory_format, MemoryFormatSpec)):
        if isinstance(value, kind):
            return spec(str(value).removeprefix("torch."))
    return value


class TorchBound(Struct):
    """Arguments as torch takes them for one way of running, the tensors among them by name, and what they were."""

    args: list[Any]
    kwargs: dict[str, Any]
    tensors: dict[str, torch.Tensor]
    leaves: dict[str, torch.Tensor]
    way: Way
    steps: StepsMode | KernelsMode | None
    versions: dict[str, int]


class Binder:
    """Turns an argument tree into what the framework takes, for one way of running."""

    def __init__(self, way: Way, wanted: Wanted | None) -> None:
        self.way = way
        self.wanted = wanted or Wanted()
        self.tensors: dict[str, torch.Tensor] = {}
        self.leaves: dict[str, torch.Tensor] = {}

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TorchBound:
        bound_args: list[Any] = map_tree(list(args), "input", self._leaf)
        bound_kwargs: dict[str, Any] = map_tree(kwargs, "kwargs", self._leaf)
        mode = None if self.way.steps is None else self._steps(self.way.steps)
        # What a call writes to has another version afterwards.
        versions = {name: tensor._version for name, tensor in self.tensors.items()}
        return TorchBound(bound_args, bound_kwargs, self.tensors, self.leaves, self.way, mode, versions)

    def _steps(self, steps: Steps) -> StepsMode | KernelsMode:
        if steps.own:
            operands = getattr(torch, steps.dtype) if steps.products else None
            return KernelsMode(elsewhere=steps.elsewhere, operands=operands, separate=steps.separate)
        wide = (tensor for name, tensor in self.tensors.items() if name in steps.wide)
        dtype = getattr(torch, steps.dtype)
        return StepsMode(
            dtype,
            steps.fine,
            steps.seed,
            wide,
            steps.kernels,
            by_chance=steps.by_chance,
            computed=steps.computed,
            order=steps.order,
        )

    def _leaf(self, value: Any, name: str) -> Any:
        if isinstance(value, Leaf):
            return self._tensor(value, name)
        if isinstance(value, PLAIN):
            return value
        return self._special(value)

    def _special(self, value: Any) -> Any:
        if isinstance(value, DtypeSpec):
            return self._dtype(value.name)
        if isinstance(value, DeviceSpec):
            return torch.device(self.way.place) if self.way.device is None else place(self.way.device)
        if isinstance(value, MemoryFormatSpec):
            return getattr(torch, value.name)
        if isinstance(value, SizeSpec):
            return torch.Size(value.shape)
        if isinstance(value, Array):
            own = to_tensor(value.array)
            return (own if self.way.device is not None else widened(own, self.way.dtype)).numpy()
        return value

    def _dtype(self, name: str) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, name)
        if self.way.device is not None:
            return dtype
        if dtype.is_complex:
            return TORCH_COMPLEX[self.way.dtype]
        return getattr(torch, self.way.dtype) if dtype.is_floating_point else dtype

    def _tensor(self, leaf: Leaf, name: str) -> torch.Tensor:
        if self.way.device is None:
            tensor = self._of_reference(leaf.array)
        else:
            tensor = self.way.device.put(to_tensor(leaf.array))
        if leaf.strides is not None or leaf.offset:
            tensor = laid_out(tensor, leaf.strides, leaf.offset)
        # The leaf keeps its gradient; the call gets the leaf, or a copy that it may write to.
        if name in self.wanted.names:
            self.leaves[name] = tensor.requires_grad_()
            # torch refuses to write to a leaf that wants a gradient; a copy of it may be written to.
            tensor = copied(tensor, leaf.strides, leaf.offset) if self.wanted.copies else tensor
        self.tensors[name] = tensor
        return tensor

    def _of_reference(self, array: np.ndarray) -> torch.Tensor:
        if self.way.place == "cpu":
            return to_wide_tensor(array, self.way.dtype)
        return widened(to_tensor(array).to(self.way.place), self.way.dtype)


@contextlib.contextmanager
def surroundings(way: Way, steps: StepsMode | KernelsMode | None, grad: bool) -> Iterator[None]:
    """State, default dtype, gradient mode, autocast and step rounding of one run; all restored."""
    user = contextlib.nullcontext() if way.state == "fixed" else OfUser(way.state)
    plain = steps is None and way.mode is None and not way.autocast
    with user:
        default = torch.get_default_dtype()
        with torch.set_grad_enabled(grad), contextlib.nullcontext() if plain else _modes(way, steps):
            try:
                if way.default or way.dtype == "float64":
                    torch.set_default_dtype(getattr(torch, way.default or way.dtype))
                yield
            finally:
                torch.set_default_dtype(default)


@contextlib.contextmanager
def _modes(way: Way, steps: StepsMode | KernelsMode | None) -> Iterator[None]:
    """Autocast, device mode and step rounding of one run."""
    with contextlib.ExitStack() as stack:
        if way.autocast:
            kind = "cpu" if way.device is None else place(way.device).type
            stack.enter_context(torch.autocast(kind, dtype=getattr(torch, way.autocast), cache_enabled=False))
        stack.enter_context(emulated(way.mode, way.jitter))
        if isinstance(steps, StepsMode) and not steps.fine:
            for mode in cpu_kernels(steps.dtype).modes():
                stack.enter_context(mode)
        if steps is not None:
            stack.enter_context(steps)
        yield


def run(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    way: Way,
    wanted: Wanted | None,
) -> Run:
    """Make one call; see Framework.run."""
    bound = bind_function(args, kwargs, way, wanted)
    with surroundings(way, bound.steps, wanted is not None and wanted.grad):
        if way.device is None:
            with reference_run(way):
                result = function(*bound.args, **bound.kwargs)
        else:
            result = way.device.call(function, bound.args, bound.kwargs)
    return left(bound, result)


def bind_function(args: Sequence[Any], kwargs: Mapping[str, Any], way: Way, wanted: Wanted | None) -> TorchBound:
    """The arguments of a call; see Framework.bind."""
    return Binder(way, wanted).bind(args, kwargs)


def left(bound: TorchBound, result: Any) -> Run:
    """What a call on bound arguments left; see Framework.left."""
    way = bound.way
    outputs = dict(RESULTS.flattened(result))
    get = functools.partial(_brought, torch.Tensor.cpu if way.device is None else way.device.get)
    owners = {id(tensor): name for name, tensor in bound.tensors.items()}
    return Run(
        outputs={
            name: get(value) if isinstance(value, torch.Tensor) else RESULTS.plain(value)
            for name, value in outputs.items()
        },
        changed=frozenset(name for name, tensor in bound.tensors.items() if tensor._version != bound.versions[name]),
        after=lambda name: get(bound.tensors[name]),
        returned={name: owners[id(value)] for name, value in outputs.items() if id(value) in owners},
        differentiable=tuple(
            name for name, value in outputs.items() if isinstance(value, torch.Tensor) and value.requires_grad
        ),
        handle=(outputs, bound.leaves, way, bound.steps, get, result),
    )


@memory_errors
def _brought(bring: Callable[[torch.Tensor], torch.Tensor], tensor: torch.Tensor) -> np.ndarray:
    return to_array(bring(tensor.detach()))


def returned(run: Run) -> Returned:
    """How the outputs of a run lie on its device; see Framework.returned."""
    outputs, _, way, _, _, result = run.handle
    return described(result, outputs, way.device)


def would_return(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], way: Way) -> Returned:
    """What a call in its own dtypes returns, whose results stay where they are; see Framework.would_return."""
    bound = bind_function(args, kwargs, way, None)
    with surroundings(way, None, grad=False):
        result = function(*bound.args, **bound.kwargs)
    return described(result, dict(RESULTS.flattened(result)), way.device)


def gradients(run: Run, seeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Gradients of the wanted arguments; see Framework.gradients."""
    outputs, leaves, way, steps, get, _ = run.handle
    check_backward(outputs[name] for name in seeds)
    incoming = [_seed(seeds[name], outputs[name], way) for name in seeds]
    # Programs go backward outside of autocast, whose casts the graph holds.
    with surroundings(replace(way, autocast=""), steps, grad=False):
        found = backward([outputs[name] for name in seeds], list(leaves.values()), incoming)
    return {name: get(_dense(gradient)) for name, gradient in zip(leaves, found, strict=True) if gradient is not None}


def _dense(gradient: torch.Tensor) -> torch.Tensor:
    """What the rows of a sparse gradient, one for every use, add up to: in float64, since no kernel added them up."""
    if gradient.layout is not torch.sparse_coo:
        return gradient
    return gradient.cpu().to(torch.float64).to_dense().to(gradient.dtype)


def _seed(array: np.ndarray, output: torch.Tensor, way: Way) -> torch.Tensor:
    tensor = to_tensor(array)
    tensor = tensor if way.device is None else way.device.put(tensor)
    return tensor.to(output) if way.device is None else tensor.to(output.dtype)
