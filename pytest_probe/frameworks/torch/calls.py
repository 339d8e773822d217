"""PyTorch: one call, forward and backward, from arrays to arrays."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from pytest_probe.frameworks.python.calls import BoundTensors, PythonCalls, Results
from pytest_probe.frameworks.torch.arrays import (
    TORCH_COMPLEX,
    copied,
    in_order,
    laid_out,
    lying_as,
    memory_errors,
    to_array,
    to_tensor,
    to_wide_tensor,
    widened,
)
from pytest_probe.frameworks.torch.autocast import KernelsMode
from pytest_probe.frameworks.torch.device_arrays import TorchArray
from pytest_probe.frameworks.torch.emulated_modes import emulated
from pytest_probe.frameworks.torch.references import reference_result
from pytest_probe.frameworks.torch.rounding import StepsMode
from pytest_probe.frameworks.torch.safety import check_backward
from pytest_probe.frameworks.torch.state import OfUser
from pytest_probe.model.dump import DeviceSpec, DtypeSpec, MemoryFormatSpec, SizeSpec
from pytest_probe.model.run import Array, Device, Layout, Leaf, MeasuredCall, Run, Way

_Found = tuple[torch.Tensor | None, ...]

# torch's own entry to its engine, which torch.autograd.grad calls once it has compared the incoming gradients with
# their outputs. It compares sizes as symbols, and imports sympy for that: 0.2 s and 34 MiB in each process.
ENTRY = "_engine_run_backward"
_PARAMETERS = ("t_outputs", "args", "kwargs")
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def backward(
    outputs: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor], incoming: Sequence[torch.Tensor]
) -> _Found:
    """What torch.autograd.grad gives for outputs and their incoming gradients; None for a leaf that none depends on.
    The graph is used up."""
    entry: Callable[..., Any] | None = getattr(torch.autograd.graph, ENTRY, None)
    if entry is None or not _is_known(entry) or not leaves or not _fit(outputs, incoming):
        return torch.autograd.grad(outputs, leaves, incoming, allow_unused=True, retain_graph=False)
    found: _Found = entry(tuple(outputs), tuple(incoming), False, False, tuple(leaves), True, accumulate_grad=False)
    return found


@functools.cache
def _is_known(entry: Callable[..., Any]) -> bool:
    """Is it the entry that is known?"""
    try:
        return tuple(inspect.signature(entry).parameters) == _PARAMETERS
    except (TypeError, ValueError):
        return False


def _fit(outputs: Sequence[torch.Tensor], incoming: Sequence[torch.Tensor]) -> bool:
    """Is there nothing that torch.autograd.grad would do more, or refuse? The engine would add up a gradient that is
    larger than its output. A mode of the user's sees the call."""
    if torch._C._len_torch_function_stack():
        return False
    return all(
        type(output) in _PLAIN
        and type(gradient) in _PLAIN
        and not output.is_nested
        and output.shape == gradient.shape
        and output.is_complex() == gradient.is_complex()
        for output, gradient in zip(outputs, incoming, strict=True)
    )


def _layouts(device: Device | None) -> Callable[[Any], Layout]:
    place = torch.device("cpu") if device is None else device.put(torch.empty(0)).device
    return lambda tensor: Layout(
        str(tensor.dtype).removeprefix("torch."),
        str(tensor.device),
        tensor.device == place,
        tensor.stride() if tensor.layout is torch.strided else (),
    )


# torch's own types among arguments.
_SPECS = ((torch.dtype, DtypeSpec), (torch.device, DeviceSpec), (torch.memory_format, MemoryFormatSpec))


def place(device: Device) -> torch.device:
    """Where torch has the tensors of a device: on the CPU where a user's own has a name that torch does not know."""
    try:
        return torch.device(device.name)
    except RuntimeError:
        return torch.device("cpu")


class TorchBound(BoundTensors):
    tensors: dict[str, torch.Tensor]

    @staticmethod
    def version(tensor: torch.Tensor) -> int:
        return tensor._version

    def rounding(self) -> StepsMode | KernelsMode | None:
        steps = self.way.steps
        if steps is None:
            return None
        if steps.own:
            operands = getattr(torch, steps.dtype) if steps.products else None
            return KernelsMode(steps.elsewhere, operands, order=steps.seed, atomic=steps.atomic)
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
            overflows=steps.overflows,
            order=steps.order,
            places=steps.places,
        )

    def special(self, value: Any, name: str) -> Any:
        if isinstance(value, DtypeSpec):
            dtype: torch.dtype = getattr(torch, value.name)
            if self.way.device is not None:
                return dtype
            if dtype.is_complex:
                return TORCH_COMPLEX[self.way.dtype]
            return getattr(torch, self.way.dtype) if dtype.is_floating_point else dtype
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

    def tensor(self, leaf: Leaf, name: str) -> torch.Tensor:
        if isinstance(leaf.there, TorchArray):
            tensor = in_order(leaf.there.tensor, leaf.there.tensor.device)
            tensor = tensor if self.way.device is not None else widened(tensor, self.way.dtype)
        elif self.way.device is not None:
            tensor = self._on_device(self.way.device, leaf.array)
        elif self.way.place == "cpu":
            tensor = to_wide_tensor(leaf.array, self.way.dtype)
        else:
            tensor = widened(to_tensor(leaf.array).to(self.way.place), self.way.dtype)
        if leaf.strides is not None or leaf.offset:
            tensor = laid_out(tensor, leaf.strides, leaf.offset)
        if self.way.placing is not None:
            tensor = self.way.placing(name, tensor)
        # The leaf keeps its gradient; the call gets the leaf, or a copy that it may write to.
        if name in self.wanted.names:
            self.leaves[name] = tensor
        if name in self.wanted.names | self.wanted.marked:
            tensor.requires_grad_()
            # torch refuses to write to a leaf that wants a gradient; a copy of it may be written to.
            tensor = copied(tensor, leaf.strides, leaf.offset) if self.wanted.copies else tensor
        return tensor

    @staticmethod
    def _on_device(device: Device, array: np.ndarray) -> torch.Tensor:
        if device.name == "meta":  # which has no values, so that none are copied
            return torch.empty(array.shape, dtype=to_tensor(np.empty(0, array.dtype)).dtype, device="meta")
        there: torch.Tensor = device.put(to_tensor(array))
        return there


class TorchCalls(PythonCalls):
    title = "torch"
    results = Results(
        torch.Tensor, (torch.Size,), (torch.dtype, torch.device, torch.layout, torch.memory_format), _layouts
    )
    bound = TorchBound
    memory_errors = memory_errors
    array = staticmethod(to_array)
    backward = staticmethod(backward)

    @contextlib.contextmanager
    def surroundings(self, way: Way, grad: bool, steps: StepsMode | KernelsMode | None = None) -> Iterator[None]:
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

    reference_result = staticmethod(reference_result)

    @contextlib.contextmanager
    def threads(self, count: int, way: Way) -> Iterator[Executor]:
        before = torch.get_num_threads()
        # The default dtype is the process's own, so that it must stay while one thread ends a run before another does.
        with self.surroundings(way, grad=False):
            try:
                with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as pool:
                    yield pool
            finally:
                torch.set_num_threads(before)

    def fetch(self, way: Way) -> Callable[[torch.Tensor], torch.Tensor]:
        return torch.Tensor.cpu if way.device is None else way.device.get

    def differentiable(self, tensor: torch.Tensor) -> bool:
        return tensor.requires_grad

    def spec(self, value: Any, device: Device) -> Any:
        if isinstance(value, torch.Tensor):
            array = to_array(device.get(value.detach()))  # raises for a sparse tensor, which has no strides
            return Leaf(array, value.requires_grad, None if value.is_contiguous() else value.stride())
        if isinstance(value, torch.Size):
            return SizeSpec(tuple(value))
        for kind, spec in _SPECS:
            if isinstance(value, kind):
                return spec(str(value).removeprefix("torch."))
        return value

    def gradients(self, run: Run, seeds: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        check_backward(run.handle[0][name] for name in seeds)
        return super().gradients(run, seeds)

    def dense(self, gradient: torch.Tensor) -> torch.Tensor:
        """What the rows of a sparse gradient, one for every use, add up to: in float64, since no kernel added them."""
        if gradient.layout is not torch.sparse_coo:
            return gradient
        return gradient.cpu().to(torch.float64).to_dense().to(gradient.dtype)

    def seed(self, array: np.ndarray, output: torch.Tensor, way: Way) -> torch.Tensor:
        if way.device is None:
            return lying_as(array, lambda tensor: tensor.to(output.device).to(output.dtype))
        put = way.device.put
        return lying_as(array, lambda tensor: put(tensor).to(output.dtype))

    def seeding(self, call: MeasuredCall) -> Callable[[str, torch.Tensor], torch.Tensor]:
        made, seed = dict[str, torch.Tensor](), super().seeding(call)
        return lambda name, output: made[name] if name in made else made.setdefault(name, seed(name, output))

    def backward_again(self, outputs: Sequence[Any], leaves: Sequence[Any], incoming: Sequence[Any]) -> object:
        return torch.autograd.grad(outputs, leaves, incoming, retain_graph=True, allow_unused=True)

    def fresh(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return copied(value, None if value.is_contiguous() else value.stride(), int(value.storage_offset()))


@contextlib.contextmanager
def _modes(way: Way, steps: StepsMode | KernelsMode | None) -> Iterator[None]:
    """Autocast, device mode and step rounding of one run."""
    with contextlib.ExitStack() as stack:
        if way.autocast:
            kind = "cpu" if way.device is None else place(way.device).type
            stack.enter_context(torch.autocast(kind, dtype=getattr(torch, way.autocast), cache_enabled=False))
        stack.enter_context(emulated(way.mode, way.jitter))
        if steps is not None:
            stack.enter_context(steps)
        yield


CALLS = TorchCalls()
