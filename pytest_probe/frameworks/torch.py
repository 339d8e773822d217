"""PyTorch: which names may be called, what devices there are, stored tensors."""

from __future__ import annotations

import functools
import importlib
import operator
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.overrides

from pytest_probe.errors import SettingsError, UnknownAPI
from pytest_probe.frameworks import torch_calls, torch_casts, torch_defaults, torch_flags
from pytest_probe.frameworks.base import API, Bound, Device, Kernel, Run, Wanted, Way

# A record's first name, and the modules that may hold the rest: the first is what the name says, the others are
# where newer captures lost the submodule (`Torch.svd` for torch.linalg.svd).
NAMESPACES: Mapping[str, tuple[str, ...]] = {
    "Functional": ("torch.nn.functional",),
    "Tensor": ("torch.Tensor",),
    "Torch": ("torch", "torch.linalg", "torch.special", "torch.fft"),
    "VF": ("torch",),
}

# Ignored by __torch_function__, most since they take no tensor; those that touch neither files nor global state.
CREATION = frozenset(
    "arange bartlett_window blackman_window empty empty_strided eye full hamming_window hann_window kaiser_window "
    "linspace logspace ones rand randint randn randperm range scalar_tensor tensor tril_indices triu_indices zeros "
    "complex polar normal as_tensor asarray as_strided fill vander rand_like randn_like randint_like "
    "empty_permuted".split()
)
# Ignored as well, though they compute like any other.
FORGOTTEN = frozenset(
    "grouped_mm hardsigmoid hardswish scaled_grouped_mm scaled_mm sigmoid tanh upsample upsample_bilinear "
    "upsample_nearest new_empty new_empty_strided new_full new_ones new_tensor new_zeros stride unflatten".split()
)

# These tell how a tensor is kept, attach something to it, or take memory and files from elsewhere.
KEEPING = frozenset(
    "backward const_data_ptr data_ptr dim_order element_size get_device is_distributed is_pinned is_set_to is_shared "
    "module_load numpy pin_memory record_stream register_hook register_post_accumulate_grad_hook retain_grad "
    "storage_type untyped_storage share_memory_ set_ from_file from_numpy frombuffer".split()
)
# What may stand between double underscores: operators and conversions.
CALCULATING = frozenset(name.rstrip("_") for name in operator.__all__) | frozenset(
    {"bool", "complex", "float", "int", "long", "nonzero", "len", "reversed", "div", "idiv"}
)

NO_KERNEL = (
    "not implemented for",
    "could not run 'aten::",
    "no kernel image",
    "not currently implemented for",
    "low precision dtypes not supported",
    "mkl fft doesn't support tensors of type",
    "derivative for aten::",  # a compiler wants the gradient together with the forward
    "without overflow",  # a Python number that the dtype cannot hold
)


class TorchDevice:
    """A device of torch's own: cpu, cuda, npu, xpu, mps, ..."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.place = torch.device(name)

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self.place)

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return function(*args, **kwargs)

    def get(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.cpu()


class TorchFramework:
    """torch, as the execution needs it."""

    name = "pytorch"

    def describe(self) -> dict[str, str]:
        return {
            "framework": "torch",
            "version": torch.__version__,
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "cuda.matmul.allow_tf32": str(torch.backends.cuda.matmul.allow_tf32),
            "cudnn.allow_tf32": str(torch.backends.cudnn.allow_tf32),
            "deterministic": str(torch.are_deterministic_algorithms_enabled()),
            "threads": str(torch.get_num_threads()),
        }

    def allowed(self, device: str) -> tuple[str, ...]:
        return tuple(torch_flags.allowed(device.split(":", 1)[0]))

    def plain_convolutions(self, dtype: str) -> bool:
        return torch_flags.plain_convolutions(dtype)

    def share_threads(self, workers: int) -> None:
        torch.set_num_threads(max(1, torch.get_num_threads() // workers))

    def default_device(self) -> str:
        accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        return "cpu" if accelerator is None else accelerator.type

    def device(self, name: str, option: str = "--probe-device") -> TorchDevice:
        try:
            device = TorchDevice(name)
            torch.empty(0, device=device.place)
        except (RuntimeError, AssertionError) as error:
            known = ", ".join(sorted({"cpu", self.default_device()}))
            raise SettingsError(option, name, f"torch says: {_first_line(error)}; found here: {known}") from error
        return device

    def candidates(self, namespace: str, api: str, namespaces: Mapping[str, str]) -> tuple[API, ...]:
        places = (namespaces[namespace],) if namespace in namespaces else NAMESPACES.get(namespace, ())
        if not places:
            raise UnknownAPI(_no_namespace(namespace, api))
        found = [
            API(f"{place}.{api}", functools.partial(_lookup, place, api), _works_in_place(api))
            for place in (places[:1] if "." in api else places)
            if (_added(place, api) if namespace in namespaces else is_api(place, api))
        ]
        if not found:
            listed = (
                "a function there" if namespace in namespaces else "among what torch lists as public and overridable"
            )
            raise UnknownAPI(f"{namespace}.{api}: {places[0]}.{api} is not {listed}")
        return tuple(found)

    def run(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        way: Way,
        wanted: Wanted | None = None,
    ) -> Run:
        return torch_calls.run(function, args, kwargs, way, wanted)

    def as_single(self, function: Callable[..., Any], largest: float) -> Callable[..., Any]:
        return functools.partial(torch_defaults.as_single, function, largest)

    def rounded(self, tensor: torch.Tensor, dtype: str) -> torch.Tensor:
        return tensor + (tensor.to(getattr(torch, dtype)).to(tensor.dtype) - tensor).detach()

    def casts(self, path: str) -> bool:
        return torch_casts.casts(path)

    def take(self, value: Any, device: Device) -> Any:
        return torch_calls.taken(value, device)

    def bind(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], way: Way, wanted: Wanted | None
    ) -> torch_calls.Bound:
        return torch_calls.bind(args, kwargs, way, wanted)

    def left(self, bound: Bound, result: Any) -> Run:
        assert isinstance(bound, torch_calls.Bound)
        return torch_calls.left(bound, result)

    def gradients(self, run: Run, seeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return torch_calls.gradients(run, seeds)

    def kernels(self, run: Callable[[], object]) -> tuple[Kernel, ...]:
        with torch_casts.WatchMode() as watch:
            run()
        return tuple(watch.seen)

    def has_no_kernel(self, error: BaseException) -> bool:
        text = str(error).lower()
        return isinstance(error, NotImplementedError) or any(words in text for words in NO_KERNEL)

    def load(self, path: Path) -> np.ndarray:
        try:
            value = torch.load(path, map_location="cpu", weights_only=True)
        except OSError:
            raise
        except Exception as error:  # torch.load raises whatever a damaged file happens to trip over
            raise ValueError(_first_line(error)) from error
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"holds a {type(value).__name__}, not a tensor")
        return torch_calls.to_array(value)

    def save(self, path: Path, arrays: Mapping[str, np.ndarray]) -> None:
        torch.save({name: torch_calls.to_tensor(array) for name, array in arrays.items()}, path)


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0]


def _no_namespace(namespace: str, api: str) -> str:
    if namespace in ("Distributed", "NPU_Distributed"):
        return f"{namespace}.{api}: communication between ranks cannot be replayed alone"
    known, operators = ", ".join(NAMESPACES), f"torch.ops.{'aten' if namespace == 'Aten' else namespace}"
    return (
        f"{namespace}.{api}: {namespace} is none of {known}; allow it with probe_namespaces "
        f"({namespace}=python.module, or {namespace}={operators} for operators)"
    )


def _works_in_place(api: str) -> bool:
    name = api.rsplit(".", 1)[-1]
    if name.startswith("__"):
        return name == "__setitem__" or (name.startswith("__i") and name not in ("__invert__", "__index__", "__int__"))
    return name.endswith("_")


@functools.cache
def _owner(place: str) -> Any:
    """The module of that name, or what hangs below one ("torch.Tensor", "torch.ops.npu"). It comes from our table or
    from the user, never from a dump. Raises UnknownAPI where it is not there."""
    try:
        return importlib.import_module(place)
    except ImportError as error:
        parent, _, name = place.rpartition(".")
        owner = getattr(_owner(parent), name, None) if parent else None
        if owner is None:
            raise UnknownAPI(f"probe_namespaces: {place} cannot be imported: {error}") from error
        return owner


def _lookup(place: str, api: str) -> Any:
    """The function of that name now."""
    return functools.reduce(getattr, api.split("."), _owner(place))


def _added(place: str, api: str) -> bool:
    """Is it a function inside a module that the user added, or an overload of an operator ("add.Tensor")? What hangs
    below another module that it imported is not."""
    owner = _owner(place)
    *parents, name = api.split(".")
    for part in parents:
        owner = getattr(owner, part, None)
        if isinstance(owner, torch._ops.OpOverloadPacket):
            return isinstance(getattr(owner, name, None), torch._ops.OpOverload)
        if not isinstance(owner, ModuleType) or not owner.__name__.startswith(f"{place}."):
            return False
    return not name.startswith("_") and callable(getattr(owner, name, None))


@functools.cache
def _ignored() -> frozenset[int]:
    return frozenset(map(id, torch.overrides.get_ignored_functions()))


def is_api(place: str, api: str) -> bool:
    """Is place.api what torch lists as public and overridable, or a creation function?

    Judged by name and by what is *not* listed as ignored, so that a function that a user patched stays allowed.
    """
    *parents, name = api.split(".")
    owner = _owner(place)
    for part in parents:
        owner = getattr(owner, part, None)
        if owner not in (torch.linalg, torch.special, torch.fft, torch.nn.functional):
            return False
    function = getattr(owner, name, None)
    if not callable(function) or isinstance(function, (type, ModuleType)):
        return False
    if owner in (torch, torch.Tensor) and name in KEEPING:
        return False
    if id(function) in _ignored():
        return name in FORGOTTEN or (owner is torch and name in CREATION)
    if owner is torch.Tensor:
        return _operator(name) if name.startswith("_") else True
    if owner is torch and name.startswith(("_foreach_", "_fused_")):
        return True
    return not name.startswith("_") and name in _public(owner)


def _operator(name: str) -> bool:
    """Is it an operator ("__iadd__", "__rsub__") or a conversion ("__float__")?"""
    core = name.removeprefix("__").removesuffix("__")
    if name != f"__{core}__":
        return False
    return not CALCULATING.isdisjoint((core, core.removeprefix("r")))


def _public(owner: ModuleType) -> Sequence[str]:
    if owner is torch:  # not torch.__all__, where load and compile are
        return [*torch.functional.__all__, *_variable_functions()]
    return [name for name in dir(owner) if name[0].islower()]  # not what it imported from typing


@functools.cache
def _variable_functions() -> frozenset[str]:
    return frozenset(name for name in dir(torch._C._VariableFunctions) if not name.startswith("_"))
