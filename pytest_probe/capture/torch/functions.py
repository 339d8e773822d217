"""Functions that torch's function mode cannot see, as those of an extension: wrapped while recording."""

from __future__ import annotations

import functools
import importlib
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any, TypeAlias

import torch

from pytest_probe.capture.frames import Args, Kwargs, remove_our_frames

# Makes the call, and records it under a name: name, function, args, kwargs.
_CallHandler: TypeAlias = Callable[[str, Callable[..., Any], Sequence[Any], Mapping[str, Any]], Any]


# What the records of other functions begin with.
TAKEN = frozenset("Functional Tensor Torch VF Aten NPU Module Cell Distributed NPU_Distributed".split())


class Wrapped:
    """A function of a module, whose calls are recorded under a name. It is equal to that function and pickled as it:
    programs compare functions, and keep them."""

    def __init__(self, owner: ModuleType, attribute: str, name: str, call: _CallHandler) -> None:
        self.function: Callable[..., Any] = getattr(owner, attribute)
        functools.update_wrapper(self, self.function)
        self._place = (owner.__name__, attribute)
        self._name = name
        self._call = call

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.function(*args, **kwargs)
        try:
            return self._call(self._name, self.function, args, kwargs)
        except BaseException as error:
            remove_our_frames(error)
            raise

    def __eq__(self, other: object) -> bool:
        return self.function == (other.function if isinstance(other, Wrapped) else other)

    def __hash__(self) -> int:
        return hash(self.function)

    def __reduce__(self) -> tuple[Any, ...]:
        return _at, self._place


def _at(module: str, attribute: str) -> Any:
    return getattr(importlib.import_module(module), attribute)


@contextmanager
def wrapped(owner: ModuleType, prefix: str, names: Sequence[str], call: _CallHandler) -> Iterator[None]:
    """The owner's functions of these names as Wrapped; afterwards they are what they were, unless somebody else has
    replaced them since."""
    put = {name: Wrapped(owner, name, f"{prefix}.{name}", call) for name in names}
    for name, one in put.items():
        setattr(owner, name, one)
    try:
        yield
    finally:
        for name, one in put.items():
            if getattr(owner, name, None) is one:
                setattr(owner, name, one.function)


# Memory that nothing was written to yet: no call has computed what it holds, NaN for instance.


# They hand out memory as it is; so does what makes a tensor larger.
_ALLOCATING = frozenset(
    "empty empty_like empty_strided empty_permuted empty_quantized new new_empty new_empty_strided resize resize_ "
    "resize_as resize_as_ resize_as_sparse_ set_".split()
)
# They give elements on as they are, or write to some and leave the others: without a NaN of their own.
_MOVING = frozenset(
    "__getitem__ alias as_strided bfloat16 broadcast_tensors broadcast_to cat chunk clone concat concatenate "
    "contiguous cpu cuda detach diagonal diagonal_scatter double dsplit dstack expand expand_as fill_diagonal_ "
    "flatten flip fliplr flipud float gather get H half hsplit hstack imag index_copy index_copy_ index_fill "
    "index_fill_ index_put index_put_ index_select masked_fill masked_fill_ masked_scatter masked_scatter_ "
    "masked_select mH moveaxis movedim mT narrow narrow_copy permute pin_memory positive put put_ ravel real "
    "repeat repeat_interleave requires_grad_ reshape reshape_as resolve_conj resolve_neg roll rot90 scatter "
    "scatter_ select select_scatter slice slice_scatter split split_with_sizes squeeze squeeze_ stack swapaxes "
    "swapdims T t t_ take take_along_dim tensor_split tile to transpose transpose_ type type_as unbind unflatten "
    "unfold unsafe_split unsqueeze unsqueeze_ view view_as view_as_complex view_as_real vsplit vstack where".split()
)


class Uninitialised:
    """The storages that were handed out and not wholly written to since, by their address."""

    def __init__(self) -> None:
        self._storages: dict[int, Callable[[], Any]] = {}

    def holds(self, name: str, args: Args, kwargs: Kwargs) -> bool:
        """Does the call of this record's name ("Torch.empty", "Tensor.view") leave what such memory holds in its
        result?"""
        api = name.partition(".")[2].partition(".")[0]
        if api in _ALLOCATING:
            return True
        return bool(self._storages) and api in _MOVING and any(map(self._is, tensors([*args, *kwargs.values()])))

    def add(self, result: Any) -> None:
        """The memory of these tensors is not written to yet."""
        if len(self._storages) > 10_000:
            self._storages = {address: one for address, one in list(self._storages.items()) if one() is not None}
        for tensor in tensors(result):
            # Tensors without memory of their own have no values either.
            with suppress(Exception):
                storage = tensor.untyped_storage()
                self._storages[storage.data_ptr()] = weakref.ref(storage)

    def written(self, result: Any) -> None:
        """A call has computed these tensors: the memory that one fills is written to."""
        if not self._storages:
            return
        for tensor in tensors(result):
            if self._is(tensor) and tensor.numel() * tensor.itemsize >= tensor.untyped_storage().nbytes():
                self._storages.pop(tensor.untyped_storage().data_ptr(), None)

    def _is(self, tensor: torch.Tensor) -> bool:
        with suppress(Exception):
            storage = tensor.untyped_storage()
            known = self._storages.get(storage.data_ptr())
            return known is not None and known() is storage
        return False


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors among arguments or results, in lists and tuples."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item)
