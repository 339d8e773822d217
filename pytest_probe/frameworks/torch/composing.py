"""PyTorch: calls made of others as an autocast of another kind of device casts inside them, on the CPU.

Each kind has lists of its own: a CPU's autocast casts for cross_entropy itself, that of a GPU for the calls in it. The
tensors of such a call say that they lie on that device; what its kernels compute with lies on the CPU.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.overrides import enable_reentrant_dispatch
from torch.utils._pytree import tree_leaves, tree_map_only

from pytest_probe.frameworks.torch.dispatch import KernelsBy
from pytest_probe.frameworks.torch.rounding import computes


class Composing:
    """The CPU as a device under test, where calls are cast for as on a device of another kind. narrow gets the names of
    the kernels that give 16 bit."""

    name = "cpu"

    def __init__(self, kind: str, dtype: str) -> None:
        self.kind, self.dtype, self.grad = kind, getattr(torch, dtype), False
        self.narrow: list[str] = []

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def get(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self.grad = torch.is_grad_enabled()
        placed = functools.partial(Placed, self)
        args, kwargs = tree_map_only(torch.Tensor, placed, (list(args), dict(kwargs)))
        # The graph is that of the tensors inside.
        with torch.no_grad(), self._casting(), KernelsBy(self._made):
            result = function(*args, **kwargs)
        return tree_map_only(Placed, lambda tensor: tensor.inside, result)

    def _made(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Tensors that a call makes of none lie where its others do."""
        place = kwargs.get("device")
        if place is None or torch.device(place).type != self.kind or is_placed(args, kwargs):
            return func(*args, **kwargs)
        return Placed(self, func(*args, **{**kwargs, "device": torch.device("cpu")}))

    @contextlib.contextmanager
    def _casting(self) -> Iterator[None]:
        """torch.autocast turns itself off where there is no such device."""
        before = torch.is_autocast_enabled(self.kind), torch.get_autocast_dtype(self.kind)
        caching = torch.is_autocast_cache_enabled()
        try:
            torch.set_autocast_enabled(self.kind, True)
            torch.set_autocast_dtype(self.kind, self.dtype)
            torch.set_autocast_cache_enabled(False)
            yield
        finally:
            torch.set_autocast_enabled(self.kind, before[0])
            torch.set_autocast_dtype(self.kind, before[1])
            torch.set_autocast_cache_enabled(caching)


class Placed(torch.Tensor):
    """A tensor of a CPU that says it lies elsewhere."""

    owner: Composing
    inside: torch.Tensor

    @staticmethod
    def __new__(cls, owner: Composing, inside: torch.Tensor) -> Placed:
        made: Any = torch.Tensor._make_wrapper_subclass
        place = torch.device(owner.kind, 0)
        layout = {"strides": inside.stride(), "storage_offset": inside.storage_offset()}
        self: Placed = made(cls, inside.size(), dtype=inside.dtype, device=place, **layout)
        self.owner, self.inside = owner, inside
        return self

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return inside(func, args, kwargs or {}, contextlib.nullcontext())


def is_placed(args: Any, kwargs: Mapping[str, Any]) -> bool:
    return any(isinstance(leaf, Placed) for leaf in tree_leaves((args, kwargs)))


def inside(func: Any, args: Any, kwargs: Any, mode: AbstractContextManager[Any]) -> Any:
    """A kernel, under a mode, with the tensors inside those that it is given."""
    owner = next(leaf.owner for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Placed))
    own_args, own_kwargs = tree_map_only(Placed, lambda tensor: tensor.inside, (args, dict(kwargs)))
    if own_kwargs.get("device") is not None:
        own_kwargs["device"] = torch.device("cpu")
    with enable_reentrant_dispatch(), torch.set_grad_enabled(owner.grad), mode:
        result = func(*own_args, **own_kwargs)
    found = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    if computes(func, own_args) and any(leaf.dtype is owner.dtype for leaf in found):
        owner.narrow.append(func.overloadpacket.__name__.strip("_"))
    return tree_map_only(torch.Tensor, functools.partial(Placed, owner), result)
