"""PyTorch: calls made of others, under an autocast that casts for those: each kernel in float64, rounded once.

What is float32 in such a call and what is 16 bit, forward and backward, only the call itself shows: it runs in its own
dtypes, and every kernel's numbers are replaced by those of float64, rounded to the kernel's dtype (and inside, where
the CPU's kernel is known to), so that a kernel that is wrong excuses nothing. Of a call that casts by itself, as
rms_norm does, it is enough to know which kernels compute in float32.

Each kind of device has an autocast with lists of its own: a CPU's casts for cross_entropy itself, that of a GPU for the
calls in it. The tensors of a call under another kind's say that they lie on that device; what its kernels compute with
lies on the CPU.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, enable_reentrant_dispatch
from torch.utils._pytree import tree_leaves, tree_map_only

from pytest_probe.frameworks.torch.accelerators import accelerator_kernel
from pytest_probe.frameworks.torch.kernels import KernelsBy
from pytest_probe.frameworks.torch.rounding import SplittingMode, StepsMode, computes, only_moves
from pytest_probe.model.run import Composition, Kernel


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
    """A kernel, under a mode, with the tensors inside the given ones."""
    owner = next(leaf.owner for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Placed))
    own_args, own_kwargs = tree_map_only(Placed, lambda tensor: tensor.inside, (args, dict(kwargs)))
    if own_kwargs.get("device") is not None:
        own_kwargs["device"] = torch.device("cpu")
    if func in _WIDENING and own_args[2]:
        own_args = (own_args[0].float(), own_args[1], False)
    with enable_reentrant_dispatch(), torch.set_grad_enabled(owner.grad), mode:
        result = func(*own_args, **own_kwargs)
    found = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    if computes(func, own_args) and any(leaf.dtype is owner.dtype for leaf in found):
        owner.narrow.append(func.overloadpacket.__name__.strip("_"))
    return tree_map_only(torch.Tensor, functools.partial(Placed, owner), result)


# Those that a GPU asks to give float32 of float16, which the CPU's refuse.
_WIDENING = (torch.ops.aten._softmax.default, torch.ops.aten._log_softmax.default)
# What an autocast casts to, and what it casts. float64 is left alone.
_NARROW_TENSORS = (torch.bfloat16, torch.float16)
_FLOAT_TENSORS = (*_NARROW_TENSORS, torch.float32)
# By these an autocast casts; anything else that gives 16 bit was asked for by the call.
_CASTS = (torch.ops.aten.to, torch.ops.aten._to_copy)
# Where torch registers kernels made of other operators that autograd has a formula for.
_PRODUCTS = (torch.ops.aten.bmm.default, torch.ops.aten.mm.default)
_COMPOSED_KEYS = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")


@functools.cache
def casts(path: str, kind: str = "cpu") -> bool:
    """Does an autocast of a kind of device cast the arguments of this function ("torch.nn.functional.linear") itself?
    One that torch has no lists for has the CPU's."""
    key = f"Autocast{kind.upper()}"
    if not hasattr(torch._C.DispatchKey, key):
        return casts(path)
    *parents, name = path.replace("__", "").split(".")
    prefix = f"{parents[-1]}_" if parents and parents[-1] in ("linalg", "special", "fft") else ""
    packet = getattr(torch.ops.aten, prefix + name, None)
    names = [] if packet is None else [getattr(packet, overload)._name for overload in packet.overloads()]
    known = (full for full in names if torch._C._dispatch_has_kernel(full))
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(full, key) for full in known)


@functools.cache
def _composed(func: Any) -> Any:
    """Where the kernel of an operator is registered that autograd has a formula for, and that is made of others on the
    CPU; None for any other."""
    has = functools.partial(torch._C._dispatch_has_kernel_for_dispatch_key, func._name)
    if has("CPU") or func._schema.is_mutable or only_moves(func):
        return None
    found = [key for key in _COMPOSED_KEYS if has(key)]
    return getattr(torch._C.DispatchKey, found[0]) if found else None


class KernelsMode(SplittingMode):
    """Gives every kernel's results the numbers that float64 gives, rounded to their dtype.

    An operator that autograd has a formula for is one kernel to a mode, also where it is made of others that an
    autocast casts for: those are met one by one. elsewhere: kernels round inside as an accelerator's, not as the CPU's,
    and which; operands: the dtype that those of float32 products are rounded to, as a fused attention's;
    order: of three factors and of atomic additions; atomic: sums by an index are such ones there.
    Raises NotImplementedError at a kernel that float64 has not.
    """

    def __init__(
        self,
        elsewhere: Composition | None = None,
        operands: torch.dtype | None = None,
        *,
        order: int = 0,
        atomic: bool = True,
    ) -> None:
        super().__init__()
        self.atomic = atomic
        self.order = order
        self.operands = operands
        self.elsewhere = elsewhere
        self.casts = False  # does an autocast cast what the call is at?
        self.cast = False  # did it, in the operator that is taken apart?
        self._calls = _Calls(self)

    def __enter__(self) -> Any:
        self._calls.__enter__()  # type: ignore[no-untyped-call]
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call]
        self._calls.__exit__(*raised)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if is_placed(args, kwargs):
            return inside(func, args, kwargs, self)
        apart = self._apart(func, args, kwargs)
        if apart is not NotImplemented:
            return apart
        wide_args, wide_kwargs = tree_map_only(torch.Tensor, _wide, (args, kwargs))
        # An operator that is asked to compute in float32 would do so in its float64 twin.
        if wide_kwargs.get("dtype") in _FLOAT_TENSORS:
            wide_kwargs["dtype"] = torch.float64
        result = func(*args, **kwargs)
        self.cast |= func.overloadpacket in _CASTS and result.dtype in _NARROW_TENSORS
        if only_moves(func):
            return result
        found = [tensor for tensor in tree_leaves(result) if isinstance(tensor, torch.Tensor)]
        if not any(tensor.dtype in _FLOAT_TENSORS for tensor in found):
            return result
        exact = self._exact(func, wide_args, wide_kwargs, found)
        wanted = [tensor for tensor in tree_leaves(exact) if isinstance(tensor, torch.Tensor)]
        for tensor, number in zip(found, wanted, strict=True):
            if tensor.dtype in _FLOAT_TENSORS:
                # .data: autograd, which may have saved the tensor, sees no new version.
                tensor.data.copy_(number)
        return result

    def _apart(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The result of an operator in whose parts the autocast casts; NotImplemented of any other."""
        key = _composed(func)
        if key is None or not self.casts or func in self.split:
            return NotImplemented
        before, self.cast = self.cast, False
        # Inside a dispatch mode an autocast casts nothing; here it does. A function mode would be shown the operator
        # itself in place of its kernel.
        excluded = torch._C._dispatch_tls_local_exclude_set().remove(torch._C.DispatchKey.AutocastCPU)
        casting: Any = torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), excluded)
        with casting, torch._C.DisableTorchFunction():
            result = self.composed(functools.partial(func._op_dk, key), func, args, kwargs)
        cast, self.cast = self.cast, before or self.cast
        return result if cast else NotImplemented

    def _product(self, func: Any, args: Any) -> Any:
        """A float32 product in float64, of rounded operands where an attention's are."""
        if self.operands is None:
            return func(*args)
        result = func(*(value.to(self.operands).to(torch.float64) for value in args))
        return result.to(self.operands).to(torch.float64) if self.elsewhere == "separate" else result

    def _exact(self, func: Any, args: Any, kwargs: Any, found: list[torch.Tensor]) -> Any:
        narrow = next((tensor.dtype for tensor in found if tensor.dtype in _NARROW_TENSORS), None)
        try:
            if narrow is None:
                return self._product(func, args) if func in _PRODUCTS else func(*args, **kwargs)
            if self.elsewhere:
                # A run that records its graph is there for gradients: what it gives itself is judged elsewhere.
                how = "composed" if self.elsewhere == "stepwise" and torch.is_grad_enabled() else self.elsewhere
                mixed = any(tensor.dtype is torch.float32 for tensor in found)
                kernel = accelerator_kernel(func, narrow, how, self.order, atomic=self.atomic, mixed=mixed)
                return kernel(*args, **kwargs)
            with StepsMode(narrow, fine=False):
                return func(*args, **kwargs)
        except (RuntimeError, TypeError) as error:
            raise NotImplementedError(f"{func} in float64: {error}") from error


class _Calls(TorchFunctionMode):
    """Tells a mode of kernels whether an autocast is on where a function is called, which a kernel cannot see; the call
    may turn it off for a part of itself."""

    def __init__(self, kernels: KernelsMode) -> None:
        super().__init__()
        self.kernels = kernels

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.kernels.casts = torch.is_autocast_enabled("cpu")
        return func(*args, **(kwargs or {}))


def kernels(run: Callable[[], object]) -> tuple[Kernel, ...]:
    """The kernels of a call in their order, and of each whether all that it gives is float32, and whether all floating
    tensors that it takes are of 16 bit."""
    found: list[Kernel] = []

    def dtypes(tree: Any) -> set[torch.dtype]:
        return {leaf.dtype for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)}

    def seen(func: Any, args: Any, kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        if computes(func, args):
            taken = {dtype for dtype in dtypes(args) if dtype.is_floating_point}
            found.append((str(func), dtypes(result) == {torch.float32}, taken <= {torch.bfloat16, torch.float16}))
        return result

    with KernelsBy(seen):
        run()
    return tuple(found)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to(torch.float64) if tensor.dtype in _FLOAT_TENSORS else tensor.detach().clone()
