"""PyTorch: which recorded names may be called, and the functions that they lead to.

Ours is a list of what must not be called; what a dump names is judged by name, and nothing is imported for it.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import torch
import torch.overrides

from pytest_probe.errors import UnknownAPI
from pytest_probe.frameworks.base import API
from pytest_probe.frameworks.python.binding import is_operator, works_in_place
from pytest_probe.frameworks.torch import npu

# A record's first name, and the modules that may hold the rest: the first is what the name says, the others are
# where newer captures lost the submodule (`Torch.svd` for torch.linalg.svd).
_NAMESPACES: Mapping[str, tuple[str, ...]] = {
    "Functional": ("torch.nn.functional",),
    "Tensor": ("torch.Tensor",),
    "Torch": ("torch", "torch.linalg", "torch.special", "torch.fft"),
    "VF": ("torch",),
}

# Ignored by __torch_function__, most since they take no tensor; these touch neither files nor global state.
CREATION = frozenset(
    "arange bartlett_window blackman_window empty empty_strided eye full hamming_window hann_window kaiser_window "
    "linspace logspace ones rand randint randn randperm range scalar_tensor tensor tril_indices triu_indices zeros "
    "complex polar normal as_tensor asarray as_strided fill vander rand_like randn_like randint_like "
    "empty_permuted".split()
)

# Ignored as well, though they compute like any other.
_FORGOTTEN = frozenset(
    "grouped_mm hardsigmoid hardswish scaled_grouped_mm scaled_mm sigmoid tanh upsample upsample_bilinear "
    "upsample_nearest new_empty new_empty_strided new_full new_ones new_tensor new_zeros stride unflatten".split()
)

# What torch.nn.functional's functions of these names call.
_PRODUCTS = frozenset("_scaled_mm _scaled_mm_v2 _scaled_grouped_mm _scaled_grouped_mm_v2 _grouped_mm".split())

# These say how a tensor is stored, attach something to it, or take memory and files from elsewhere.
_KEEPING = frozenset(
    "backward const_data_ptr data_ptr dim_order element_size get_device is_distributed is_pinned is_set_to is_shared "
    "module_load numpy pin_memory record_stream register_hook register_post_accumulate_grad_hook retain_grad "
    "storage_type untyped_storage share_memory_ set_ from_file from_numpy frombuffer".split()
)


def candidates(namespace: str, api: str, namespaces: Mapping[str, str]) -> tuple[API, ...]:
    """What a recorded name may mean; see Framework.candidates. namespaces are the user's."""
    if namespace == npu.PREFIX and namespace not in namespaces and api in npu.OPERATORS:
        lookup = functools.partial(npu.operator, api)
        return (API(f"{npu.MODULE}.{api}", lookup, works_in_place(api), elsewhere=False),)
    places = (namespaces[namespace],) if namespace in namespaces else _NAMESPACES.get(namespace, ())
    if not places:
        if namespace in ("Distributed", "NPU_Distributed"):
            raise UnknownAPI(f"{namespace}.{api}: communication between ranks cannot be replayed alone")
        known, operators = ", ".join(_NAMESPACES), f"torch.ops.{'aten' if namespace == 'Aten' else namespace}"
        raise UnknownAPI(
            f"{namespace}.{api}: {namespace} is not one of {known}; allow it with probe_namespaces "
            f"({namespace}=python.module, or {namespace}={operators} for operators)"
        )
    found = [
        API(f"{place}.{api}", functools.partial(_lookup, place, api), works_in_place(api), place != places[0])
        for place in (places[:1] if "." in api else places)
        if (_added(place, api) if namespace in namespaces else is_api(place, api))
    ]
    if not found:
        listed = "a function there" if namespace in namespaces else "among what torch lists as public and overridable"
        raise UnknownAPI(f"{namespace}.{api}: {places[0]}.{api} is not {listed}")
    return tuple(found)


def apis() -> Iterator[str]:
    """The names that `candidates` admits, but for those in namespaces that a user adds."""
    for namespace, places in _NAMESPACES.items():
        for place in places:
            yield from (f"{namespace}.{name}" for name in dir(owner_of(place)) if is_api(place, name))


def owner_of(place: str) -> Any:
    """The module of that name, or what hangs below one ("torch.Tensor", "torch.ops.npu"). It comes from our table or
    from the user, never from a dump. Nothing is kept: a notebook may import a module anew. Raises UnknownAPI where it
    is not there."""
    owner = sys.modules.get(place)
    parent, _, name = place.rpartition(".")
    if owner is None and parent:
        owner = getattr(owner_of(parent), name, None)
    if owner is not None:
        return owner
    try:
        return importlib.import_module(place)
    except ImportError as error:
        raise UnknownAPI(f"probe_namespaces: {place} cannot be imported: {error}") from error


def _lookup(place: str, api: str) -> Any:
    """The function of that name now."""
    return functools.reduce(getattr, api.split("."), owner_of(place))


def _added(place: str, api: str) -> bool:
    """Is it a function inside a module that the user added, or an overload of an operator ("add.Tensor")? What hangs
    below another module that it imported is not."""
    owner = owner_of(place)
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
    owner = owner_of(place)
    for part in parents:
        owner = getattr(owner, part, None)
        if owner not in (torch.linalg, torch.special, torch.fft, torch.nn.functional):
            return False
    function = getattr(owner, name, None)
    if not callable(function) or isinstance(function, (type, ModuleType)):
        return False
    if owner in (torch, torch.Tensor) and name in _KEEPING:
        return False
    if id(function) in _ignored():
        return name in _FORGOTTEN or (owner is torch and name in CREATION)
    if owner is torch.Tensor:
        return is_operator(name) if name.startswith("_") else True
    if owner is torch and (name.startswith(("_foreach_", "_fused_")) or name in _PRODUCTS):
        return True
    if name.startswith("_"):
        return False
    if owner is torch:  # not torch.__all__, where load and compile are
        return name in torch.functional.__all__ or name in _variable_functions()
    return name[0].islower() and name in dir(owner)  # not what it imported from typing


@functools.cache
def _variable_functions() -> frozenset[str]:
    return frozenset(name for name in dir(torch._C._VariableFunctions) if not name.startswith("_"))
