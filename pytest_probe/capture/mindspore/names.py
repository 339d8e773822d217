"""Which of MindSpore's functions are recorded, and under which names: the names that a replay finds again."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, ModuleType, WrapperDescriptorType
from typing import Any

import mindspore
from mindspore import mint
from mindspore.ops import operations

from pytest_probe.frameworks.python.binding import is_operator, works_in_place

# Modules of mint, and what the records of their functions begin with. The first name of a function counts.
_MINT: tuple[tuple[str, Any], ...] = (
    ("MintFunctional.", mint.nn.functional),
    ("Mint.", mint),
    ("Mint.linalg.", mint.linalg),
    ("Mint.special.", mint.special),
)
# What its modules hold for themselves.
_HELPER = re.compile(r"(_ext|_op|_impl|_func|[^_]_)$|^(inplace|jit)_|^constexpr$")
# Parameters have the methods of tensors, but are not recorded as such.
CLASSES = (mindspore.Tensor, mindspore.Parameter)
# Modules whose functions take functions, talk to other processes, or serve the compiler.
_OTHER = re.compile(
    r"\.(grad_func|vmap_func|comm_func|debug_func|reshard_func|op_info_register|vm_impl_registry|composite\.\w+"
    r"|primitive|control_ops|_\w+)$"
)
_NO_COMPUTATION = frozenset("get_rng_state set_rng_state seed manual_seed initial_seed is_tensor set_seed".split())
# They ask about a tensor, or take its value out: nothing is computed.
_ASKING = frozenset(
    "asnumpy numpy item tolist dim ndimension numel nelement size stride storage storage_offset untyped_storage shape "
    "is_contiguous is_complex is_floating_point is_signed is_init is_meta is_pinned is_shared data_ptr data_sync "
    "get_bytes register_hook remove_hook hooks requires_grad_ retain_grad has_init init_data init_finished const_arg "
    "set_const_arg set_dtype set_init_flag set_cast_dtype set_param_info set_device_address set_ param_info "
    "getitem_index_info setitem_index_info convert_bytes_to_tensor from_numpy from_dlpack to_dlpack value data "
    "flush_from_cache offload move_to pin_memory delete_ wait_pipeline symbolic_shape type virtual_flag delta_seed "
    "assign_value assign_value_cpp parent_tensor_ index_of_parent_ itemsize nbytes strides device dtype itemset "
    "__len__ __bool__ __float__ __int__ __index__ __contains__ __iter__ __array__ __format__ __init__".split()
)
# They write to a tensor, and their names do not say so.
_WRITING = frozenset(
    "assign assign_add assign_sub itemset inplace_update inplace_add inplace_sub "
    "set_data set_ batch_norm instance_norm scatter_update scatter_nd_update".split()
)
_WRITING_PRIMITIVES = re.compile("(Apply|Assign|Fused|Inplace|Scatter|SparseApply)[A-Z]?|BatchNorm|SyncBatchNorm")
_KINDS = (FunctionType, BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType)


@functools.cache
def functions() -> tuple[tuple[Callable[..., Any], str, bool], ...]:
    """All functions that are recorded, each once: with its name, and whether it may write to a tensor."""
    found: dict[int, tuple[Callable[..., Any], str, bool]] = {}
    for name, function in (*_of_modules(), *_methods()):
        last = name.rpartition(".")[2]
        found.setdefault(id(function), (function, name, works_in_place(last) or last in _WRITING))
    return tuple(found.values())


def _of_modules() -> Iterator[tuple[str, Callable[..., Any]]]:
    # What the modules of mint list comes first, since they hold functions of one another, too.
    for prefix, module in _MINT:
        yield from _of(prefix, module, module.__all__)
    for prefix, module in reversed(_MINT):
        yield from _of(prefix, module, [name for name in dir(module) if not _HELPER.search(name)])
    for name, function in _of("Functional.", mindspore.ops, dir(mindspore.ops)):
        if not _OTHER.search(function.__module__):
            yield name, function


def _of(prefix: str, module: ModuleType, names: Iterable[str]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public functions of a module. Of several names for one function its own comes first."""
    found = [(name, getattr(module, name, None)) for name in names if name not in _NO_COMPUTATION and name[0] != "_"]
    for name, function in sorted(found, key=lambda pair: (getattr(pair[1], "__name__", "") != pair[0], pair[0])):
        if isinstance(function, FunctionType):
            yield prefix + name, function


def _methods() -> Iterator[tuple[str, Callable[..., Any]]]:
    """The methods and operators of tensors, as classes have them."""
    for owner in CLASSES:
        for name in dir(owner):
            function = inspect.getattr_static(owner, name)
            if owner is mindspore.Parameter and name in vars(owner):
                continue
            known = not name.startswith("_") or is_operator(name) or name in ("__getitem__", "__setitem__")
            if known and isinstance(function, _KINDS) and name not in _ASKING and not hasattr(object, name):
                yield f"Tensor.{name}", function
        for name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
            yield f"Tensor.{name}", inspect.getattr_static(owner, name)


@functools.cache
def writing_methods() -> tuple[tuple[type, str], ...]:
    """Further methods that write to tensors, and are no call to record: those of parameters, and of primitives."""
    names = ("assign_value", "assign_value_cpp", "set_")
    kinds = [getattr(operations, name) for name in dir(operations) if _WRITING_PRIMITIVES.match(name)]
    return (
        *((mindspore.Parameter, name) for name in ("set_data", "init_data")),
        *((owner, name) for owner in CLASSES for name in names if hasattr(owner, name)),
        *((kind, "__call__") for kind in kinds if isinstance(kind, type)),
    )
