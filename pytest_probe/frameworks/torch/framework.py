"""PyTorch: which names may be called, what devices there are, stored tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.overrides

from pytest_probe.frameworks.base import API, Framework
from pytest_probe.frameworks.python.framework import PythonDevice, PythonFramework
from pytest_probe.frameworks.torch import (
    allowlist,
    arrays,
    autocast,
    compiled,
    kernels,
    memory,
    npu,
    own,
    references,
    safety,
    scaled_products,
    sizes,
    state,
)
from pytest_probe.frameworks.torch.arrays import (
    hardware,
    is_device_memory,
    lying_as,
    memory_errors,
    memory_left,
    release_memory,
    to_tensor,
)
from pytest_probe.frameworks.torch.autocast import Composing
from pytest_probe.frameworks.torch.calls import TorchCalls, place
from pytest_probe.frameworks.torch.device_arrays import TorchArray, stays
from pytest_probe.frameworks.torch.kernels import registered
from pytest_probe.frameworks.torch.own_rounding import rounding_once
from pytest_probe.frameworks.torch.proposed_arguments import completions, solved
from pytest_probe.frameworks.torch.references import border, widening
from pytest_probe.frameworks.torch.script import LITERAL, SCRIPT
from pytest_probe.frameworks.torch.signatures import canonical
from pytest_probe.model.device_arrays import Placed
from pytest_probe.model.dump import Argument
from pytest_probe.model.measurement import Clock
from pytest_probe.model.run import BoundCall, Device, MemoryUse, Way, on_reference
from pytest_probe.user_errors import message_of

# What torch's errors say, in lower case, where a device has no kernel: it gives them no type of their own.
_NO_KERNEL = (
    "not implemented for",
    "could not run 'aten::",
    "no kernel image",
    "not currently implemented for",
    "halftensor is not supported",  # histc on an NVIDIA GPU
    "is not supported on cuda",  # drivers of lstsq
    "low precision dtypes not supported",
    "unsupported dtype",  # FFTs of 16 bit
    # Checks of complex, view_as_complex, quantile, pinv, lstsq, matrix_rank and vander in 16 bit.
    "half, float or double tensors but got",
    "only supported for half, float and double tensors",
    "must be either float or double dtype",
    "tensor with 2 or more dimensions of float, double, cfloat or cdouble types",
    "handle types other than float and double",
    "supports floating point, complex, and integer tensors",
    "tried to use amp with",  # a backend that registers no autocast
    "mkl fft doesn't support tensors of type",
    "derivative for aten::",  # a compiler wants the gradient together with the forward
    "without overflow",  # a Python number that the dtype cannot hold
    # Of scaled products, whose operands and scales were found to be what their recipe asks.
    "invalid scaling configuration",
    "does not support swizzle",
    "scaled_mm is only supported on",
    "float8_e5m2 matrices is not supported",
    "cublas_status_not_supported",  # no kernel of cuBLAS's: Hopper has none for blocks of 16 and 32
    "does not have a deterministic implementation",  # and the user takes no other
)


# A copy of an argument stays on a device that has so many times its bytes left.
LEAST_ROOM = 8


class TorchDevice(PythonDevice):
    """A device of torch's own: cpu, cuda, npu, xpu, mps, ..."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.place = torch.device(name)

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self.place)

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        # The one function that wants an argument on the CPU, whatever the device.
        if function in (torch.tensor_split, torch.Tensor.tensor_split):
            args = [_to_host(value) if place else value for place, value in enumerate(args)]
            kwargs = {name: value if name == "input" else _to_host(value) for name, value in kwargs.items()}
        return super().call(function, args, kwargs)

    def get(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.cpu()


def _to_host(value: Any) -> Any:
    return value.cpu() if isinstance(value, torch.Tensor) else value


class TorchFramework(TorchCalls, PythonFramework):
    """torch, as the execution needs it."""

    name = "pytorch"
    package = "torch"
    kinds: ClassVar[tuple[str, ...]] = ("cpu", "cuda", "npu", "xpu", "mps", "hpu")
    refusals: ClassVar[tuple[type[Exception], ...]] = (
        RuntimeError,
        AssertionError,
        ImportError,
    )  # ImportError: the package of a backend
    packages: ClassVar[Mapping[str, str]] = {"npu": "torch_npu", "hpu": "habana_frameworks.torch"}
    widening = staticmethod(widening)
    hardware = staticmethod(hardware)
    is_device_memory = staticmethod(is_device_memory)
    fixed_state = staticmethod(state.Fixed)
    users_state = staticmethod(state.OfUser)
    all_bits = staticmethod(state.all_bits)
    plain_convolutions = staticmethod(state.plain_convolutions)
    registered_kernels = staticmethod(registered)
    known = staticmethod(own.known)
    apis = staticmethod(allowlist.apis)
    bytes_inside = staticmethod(on_reference(sizes.bytes_inside))
    border = staticmethod(border)
    noting_choices = staticmethod(references.noting)
    choosing_otherwise = staticmethod(references.choosing_otherwise)
    rounding_once = staticmethod(rounding_once)
    known_findings = staticmethod(kernels.known)
    compilers = staticmethod(compiled.names)
    compiler = staticmethod(compiled.TorchCompiler)
    compiler_environment = staticmethod(compiled.environment)
    compiler_error = staticmethod(compiled.compiler_error)
    casts = staticmethod(autocast.casts)
    composing = Composing
    zones = staticmethod(memory.zones)
    at_page_end = staticmethod(memory.at_page_end)
    refilled = staticmethod(memory.refilled)
    fill = staticmethod(memory.fill)
    allocations = staticmethod(memory.allocations)
    functions = staticmethod(references.functions)
    script = staticmethod(SCRIPT.text)
    literal_script = staticmethod(LITERAL.text)

    def check_arguments(self, bound: BoundCall) -> None:
        if bound.name in safety.CHECKS or bound.api.rpartition(".")[2].startswith(safety.PREFIXES):
            safety.check_arguments(bound)

    def reference(self, api: str, bound: BoundCall) -> Callable[..., Any] | None:
        prefix, _, name = api.rpartition(".")
        if prefix == npu.PREFIX:
            return npu.reference(name)
        return scaled_products.formula(api, bound) if bound.native and name in scaled_products.PRODUCTS else None

    def candidates(self, namespace: str, api: str, namespaces: Mapping[str, str]) -> tuple[API, ...]:
        return tuple(map(own.marked, allowlist.candidates(namespace, api, namespaces)))

    def describe(self) -> dict[str, str]:
        return {
            "framework": "torch",
            "version": torch.__version__,
            "threads": str(torch.get_num_threads()),
            **state.described(),
            **({"state": found} if (found := state.differing()) else {}),
            **({"shared": found} if (found := ", ".join(own.on_both_sides().values())) else {}),
        }

    def lying(self, way: Way, get: Callable[[Any], np.ndarray]) -> Callable[[Any], Any]:
        if not way.stays:
            return get

        def left(tensor: torch.Tensor) -> Any:
            if not stays(tensor):
                return get(tensor)
            if way.device is not None:  # what the device raises, it raises here
                get(tensor[(slice(0, 1),) * tensor.ndim])
            return TorchArray(tensor)

        return left

    def keeps(self, device: Device) -> bool:
        # A device of the project's own has its own way of taking and giving values.
        return type(device) is TorchDevice

    def placed(self, where: str) -> Placed:
        target = torch.device(where)

        @memory_errors
        def put(array: np.ndarray) -> TorchArray | None:
            left = memory_left(target)
            tensor = to_tensor(array)
            roomy = left is None or left > LEAST_ROOM * array.nbytes
            return TorchArray(tensor.to(target)) if roomy and stays(tensor) else None

        return Placed(put)

    def memory_left(self, device: Device) -> int | None:
        return memory_left(place(device))

    def release_memory(self, device: Device) -> None:
        release_memory(place(device))

    def unwritten(self, device: Device, like: Sequence[np.ndarray], number: float) -> AbstractContextManager[bool]:
        return memory.unwritten(place(device), like, number)

    def side_stream(self, device: Device, busy: int = 1) -> AbstractContextManager[Callable[[], bool]] | None:
        where = place(device)
        return memory.side_stream(where, busy) if memory.has_streams(where) else None

    def clock(self, device: Device) -> Clock:
        return arrays.clock(device, own=isinstance(device, TorchDevice))

    @memory_errors
    def memory_use(self, device: Device, call: Callable[[], object]) -> MemoryUse | None:
        return arrays.memory_use(place(device), call)

    def last_level_cache(self, device: Device) -> int:
        return arrays.last_level_cache(place(device))

    def yardsticks(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        return (lambda source, target: target.copy_(source)), torch.matmul

    def allowed(self, device: str) -> tuple[str, ...]:
        return tuple(state.allowed(device.split(":", 1)[0]))

    def random_state(self) -> bytes:
        return torch.get_rng_state().numpy().tobytes()

    def share_threads(self, workers: int) -> None:
        torch.set_num_threads(max(1, torch.get_num_threads() // workers))

    def default_device(self) -> str:
        accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        return "cpu" if accelerator is None else accelerator.type

    def opened(self, name: str) -> TorchDevice:
        device = TorchDevice(name)
        # torch takes any name until memory is asked for.
        torch.empty(0, device=device.place)
        return device

    def count(self, kind: str) -> int:
        try:
            return int(torch.get_device_module(kind).device_count())
        except (AttributeError, RuntimeError):
            return 1

    def shapes_alone(self) -> TorchDevice:
        return TorchDevice("meta")

    def select(self, device: Device) -> None:
        where = place(device)
        if where.type != "cpu" and where.index is not None:
            torch.get_device_module(where.type).set_device(where.index)

    def is_lost(self, device: Device) -> bool:
        where = place(device)
        if where.type == "cpu":
            return False
        try:
            torch.get_device_module(where.type).synchronize()
        except RuntimeError:
            return True
        except (AttributeError, NotImplementedError):
            return False
        return False

    def completions(self, api: API, args: Sequence[Argument], dtype: str | None) -> Iterable[tuple[str, Any]]:
        return completions(api.lookup(), canonical(api.path), args, dtype)

    def solved(self, api: API, args: Sequence[Any], output: np.ndarray) -> Iterable[Mapping[str, Any]]:
        return solved(canonical(api.path), args, output)

    def as_single(self, function: Callable[..., Any], largest: float, name: str) -> Callable[..., Any]:
        return functools.partial(references.as_single, function, largest)

    def rounded(self, tensor: torch.Tensor, dtype: str) -> torch.Tensor:
        # Values are rounded, gradients pass as if they were not.
        return tensor + (tensor.to(getattr(torch, dtype)).to(tensor.dtype) - tensor).detach()

    kernels = staticmethod(on_reference(memory_errors(autocast.kernels)))

    def put_into(self, target: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
        return target.copy_(tensor)

    def has_no_kernel(self, error: BaseException) -> bool:
        text = message_of(error).lower()
        return isinstance(error, NotImplementedError) or any(words in text for words in _NO_KERNEL)

    @memory_errors
    def save(self, path: Path, arrays: Mapping[str, np.ndarray]) -> None:
        # Through a file of Python's, which says what is wrong with the disk: torch's own says that it broke.
        with path.open("wb") as file:
            torch.save({name: lying_as(array, lambda tensor: tensor) for name, array in arrays.items()}, file)


made: Callable[[], Framework] = TorchFramework  # see frameworks.load
