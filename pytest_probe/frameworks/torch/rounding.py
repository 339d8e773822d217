"""PyTorch: run a call in float64 but round what passes from step to step, as a healthy kernel of a dtype would.

A tensor is rounded when a later kernel computes with it. Views and copies only pass it on, and final outputs keep their
exact value.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_map_only

from pytest_probe.frameworks.torch import attention
from pytest_probe.frameworks.torch.decompositions import kernel, steps_of
from pytest_probe.frameworks.torch.kernels import DispatchMode
from pytest_probe.frameworks.torch.sequential_sums import atomic_sums, sums_of_cpu
from pytest_probe.model.run import Kernel
from pytest_probe.numerics.dtypes import ULP_FLOAT32
from pytest_probe.numerics.float32_sums import Order, Sum, sum_in_order

# Kernels that add up terms, with those added in float32 in an order that is known.

_ATEN = torch.ops.aten
Tensor = torch.Tensor
# Infinities and NaN are what a call may have.
_SILENT = np.errstate(invalid="ignore", over="ignore")
# Products of two numbers in a product of matrices that is added up in order: more would take more than seconds.
_MOST = 1 << 28
# An odd number of 63 bits: a product with it mixes the bits of a number (SplitMix64).
_MIXED = 0x3F58476D1CE4E5B9
_QUOTIENTS = frozenset((_ATEN.div.Tensor, _ATEN.div.Scalar, torch.ops.prims.div.default))


def _adding_kernels(order: Order) -> Mapping[Any, Callable[..., Any]]:
    """What replaces kernels of float64: they round their terms to float32, and each sum of them. NotImplemented is
    what they give of other dtypes. Convolutions, sums by an index and large products are not
    among them."""
    add = sum_in_order(order, torch.get_num_threads())
    total, product = functools.partial(_sum, add), functools.partial(_product, add)
    return {
        _ATEN.sum.default: total,
        _ATEN.sum.dim_IntList: total,
        torch.ops.prims.sum.default: total,
        _ATEN.cumsum.default: functools.partial(_running_sum, add),
        _ATEN.mm.default: product,
        _ATEN.bmm.default: product,
    }


def steps() -> Mapping[Any, Callable[..., Any]]:
    """Kernels that are made of such sums, where torch's decompositions do not show it."""
    return {
        _ATEN._foreach_norm.Scalar: lambda tensors, ord=2, dtype=None: [
            torch.linalg.vector_norm(tensor, ord) for tensor in tensors
        ],
        _ATEN.var.correction: _variance,
        torch.ops.prims.var.default: _variance,
    }


@_SILENT
def _sum(add: Sum, x: Tensor, dim: Any = None, keepdim: bool = False, **how: Any) -> Any:
    if x.dtype is not torch.float64 or not x.ndim:
        return NotImplemented
    axes = [dim] if isinstance(dim, int) else [int(axis) for axis in dim or range(x.ndim)]
    axes = sorted(axis % x.ndim for axis in axes)
    terms = np.moveaxis(x.detach().numpy(), axes, range(len(axes)))
    found = _tensor(add(terms.reshape(-1, *terms.shape[len(axes) :])))
    for axis in axes if keepdim else ():
        found = found.unsqueeze(axis)
    return found


@_SILENT
def _running_sum(add: Sum, x: Tensor, dim: int, **how: Any) -> Any:
    """One after another in any order: only its last element might be added otherwise."""
    if x.dtype is not torch.float64 or not x.ndim:
        return NotImplemented
    return _tensor(np.add.accumulate(x.detach().numpy().astype(np.float32), axis=dim))


@_SILENT
def _product(add: Sum, first: Tensor, second: Tensor) -> Any:
    """A product of matrices, or of batches of them, a few rows of the result at a time."""
    if first.dtype is not torch.float64 or second.dtype is not torch.float64:
        return NotImplemented
    if first.numel() * second.shape[-1] > _MOST:
        return NotImplemented
    left, right = (tensor.detach().numpy().astype(np.float32) for tensor in (first, second))
    if left.ndim == 3:
        parts = [_rows(add, *pair) for pair in zip(left, right, strict=True)]
        return _tensor(np.stack(parts)) if parts else NotImplemented
    return _tensor(_rows(add, left, right))


def _rows(add: Sum, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """left [m, k] by right [k, n]."""
    found = [add(row[:, None] * right) for row in left]
    return np.stack(found) if found else np.zeros((0, right.shape[1]), np.float32)


def _tensor(values: Any) -> Tensor:
    return torch.from_numpy(np.array(values, np.float64))


def _variance(x: Tensor, dim: Any = None, correction: Any = 1, keepdim: bool = False, **how: Any) -> Tensor:
    """The mean of squares of what is left without the mean."""
    rest = x - torch.mean(x, dim, keepdim=True) if dim else x - torch.mean(x)
    squares = torch.sum(rest * rest, dim, keepdim) if dim else torch.sum(rest * rest)
    return squares / max(0.0, x.numel() / max(squares.numel(), 1) - (1 if correction is None else correction))


# What a float32 kernel's number may be off by before it is rounded to 16 bit: four roundoffs of float32.
COMPUTED = 2.0**-22
# Functions that no library rounds correctly.
_LIBRARY = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh sigmoid erf "
    "erfc erfinv lgamma digamma pow".split()
)
# Kernels that only move values: rounding waits for the next that computes with them.
_MOVES = frozenset(
    {
        _ATEN.clone.default, _ATEN._to_copy.default, _ATEN.copy_.default, _ATEN.cat.default, _ATEN.stack.default,
        _ATEN.constant_pad_nd.default, _ATEN.index_select.default, _ATEN.gather.default, _ATEN.flip.default,
        _ATEN.repeat.default, _ATEN.roll.default, _ATEN.where.self,
    }
)  # fmt: skip


# Kernels that cast a tensor of integers to the dtype of the other: the number of largest elements, in amax's gradient.
_CAST_COUNTS = frozenset({_ATEN.div.Tensor, _ATEN.mul.Tensor})

# Kernels whose results are some of their arguments' values, and kernels for which that holds where they reduce by
# these.
_SELECTS = frozenset(
    "amax amin max min maximum minimum fmax fmin relu cummax cummin sort topk kthvalue median nanmedian mode".split()
)
_REDUCES = frozenset(("amax", "amin", "max", "min"))


# Kernels that keep their statistics, all results but the first, in the dtype of their weights.
_NORMALISING = frozenset(
    {_ATEN.native_layer_norm.default, _ATEN.native_group_norm.default, _ATEN.native_batch_norm.default}
)


@functools.cache
def only_moves(func: Any) -> bool:
    views = (item.alias_info is not None and not item.alias_info.is_write for item in func._schema.returns)
    return func in _MOVES or any(views)


def computes(func: Any, args: Any) -> bool:
    """Does a kernel make tensors of tensors?"""
    return not only_moves(func) and next(tensors_of(args), None) is not None


class SplittingMode(DispatchMode):
    """A mode that runs some kernels as the steps that they are made of, itself active in each."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.split: set[Any] = set()

    def composed(self, steps: Callable[..., Any], func: Any, args: Any, kwargs: Any) -> Any:
        """The steps' result; NotImplemented where they cannot take these arguments. Inside them func is itself."""
        self.split.add(func)
        try:
            with self:
                return steps(*args, **kwargs)
        except (NotImplementedError, RuntimeError, TypeError, AssertionError):
            return NotImplemented
        finally:
            self.split.discard(func)


class StepsMode(SplittingMode):
    """Rounds every intermediate result to dtype at the moment that a later step reads it.

    What no later step reads, the outputs, stays as it is: their rounding is the half ulp that every output is
    granted. With `fine`, kernels are split by torch's own decompositions, and a library's functions are off by up to
    a float32 ulp, as seed draws it: correctly rounded ones may all meet a number that the reference lies on.
    wide are arguments of a wider dtype; kernels those of the call in its own dtypes, one for one. by_chance: a
    value between two numbers of dtype becomes one of its neighbours there, as seed draws, and a quotient is the product
    with a reciprocal, as kernels compute it that divide by one number or approximately. computed: what is rounded is
    off by a few roundoffs of float32 before, as seed draws. order: sums are added in float32 in that order, and library
    functions are rounded correctly. places: of all results, in the order in which they are made, the rounded ones.
    overflows: fine steps may lead beyond the dtype's range.
    """

    def __init__(
        self,
        dtype: torch.dtype,
        fine: bool,
        seed: int = 0,
        wide: Iterable[torch.Tensor] = (),
        kernels: Iterable[Kernel] = (),
        *,
        by_chance: bool = False,
        computed: bool = False,
        order: Order | None = None,
        places: frozenset[int] | None = None,
        overflows: bool = False,
    ) -> None:
        super().__init__()
        self.places, self.made = places, itertools.count()
        self.by_chance = by_chance
        self.computed = computed
        self.library = _LIBRARY if order is None else frozenset[str]()
        self.sums = {} if order is None else _adding_kernels(order)
        self.made_of_sums = {} if order is None else steps()
        self.dtype = dtype
        self.fine, self.overflows = fine, overflows
        self.wide = {storage(tensor) for tensor in wide}
        self.kernels = iter(kernels)
        self.seed, self.generator = seed, torch.Generator().manual_seed(seed)
        self.pending: dict[int, list[tuple[torch.Tensor, bool]]] = {}  # of a storage: what was written, by a library?
        # A freed storage's address would be taken for another tensor's. Its numbers need not stay for that.
        self.known: list[StorageWeakRef] = []
        self.wider: set[int] = set()  # storages of what the call may have in float32

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # Does the kernel compute in float32 where the call runs in its own dtypes? The two runs go side by side.
        single = narrow = False
        if not self.split and computes(func, args) and (known := next(self.kernels, None)) and known[0] == str(func):
            _, single, narrow = known
        if self.fine and not single and func not in self.split and func not in self.sums:
            steps = self.made_of_sums.get(func) or steps_of(func, args, kwargs)
            result = NotImplemented if steps is None else self.composed(steps, func, args, kwargs)
            if result is not NotImplemented:
                return result
        inputs = {storage(tensor) for tensor in tensors_of((args, kwargs))}
        if not only_moves(func):
            # Now, and not when it was made: only a tensor that a step reads passes from one step to another.
            for key in inputs & self.pending.keys():
                for tensor, inexact in self.pending.pop(key):
                    self._round(tensor, inexact)
        moved = (flag for key in inputs for _, flag in self.pending.get(key, ()))
        if narrow and not func._schema.is_mutable:
            args = tree_map_only(torch.Tensor, self._cast, args)
        # What only moves a library's result moves its error as well.
        of_library = self.fine and (func.overloadpacket.__name__ in self.library or any(moved))
        if func in _CAST_COUNTS and not single and any(tensor.is_floating_point() for tensor in tensors_of(args)):
            args = tuple(map(self._counted, args))
        # Another device's, where kernels are split.
        atomic = atomic_sums(self.dtype).get(func) if self.fine else None
        stands_in = self.sums.get(func) or atomic or sums_of_cpu(self.dtype).get(func)
        if self.by_chance and func in _QUOTIENTS:
            stands_in = self._by_reciprocal
        result = NotImplemented if single or stands_in is None else stands_in(*args, **kwargs)
        if result is NotImplemented:
            result = kernel(func)(*args, **kwargs)
        # Numbers that were there before are rounded already, or are float32 in the call itself, moved or not.
        if only_moves(func):
            single = not inputs.isdisjoint(self.wider)
        if single or func is _ATEN.lift_fresh.default:
            self.wider.update(map(storage, tensors_of(result)))
        if single or self._is_choice(func, args, kwargs):
            self._know(result)
            return result
        if self._is_wider(func, inputs):
            self._know(result[1:])
            inputs |= {storage(tensor) for tensor in result[1:]}
        for tensor in tensors_of(result):
            if func._schema.is_mutable or storage(tensor) not in inputs:
                if self.places is None or next(self.made) in self.places:
                    self.pending.setdefault(storage(tensor), []).append((tensor, of_library))
                self._know(tensor)
        return result

    def _cast(self, tensor: torch.Tensor) -> torch.Tensor:
        """As a kernel that takes 16 bit alone takes it. What was float32 before may be needed as it is, too."""
        casts = tensor.dtype is torch.float64 and storage(tensor) in self.wider
        return self._narrowed(tensor).to(tensor.dtype) if casts else tensor

    def _know(self, result: Any) -> None:
        weak: Callable[..., StorageWeakRef] = StorageWeakRef  # without annotations of its own
        self.known.extend(weak(tensor.untyped_storage()) for tensor in tensors_of(result))

    def _counted(self, value: Any) -> Any:
        """Integers as numbers of dtype."""
        if not isinstance(value, torch.Tensor) or value.dtype is not torch.int64 or not value.ndim:
            return value
        return value.to(self.dtype).to(torch.float64)

    def _is_choice(self, func: Any, args: Any, kwargs: Any) -> bool:
        """Are the results numbers that were there before? A backward may look for them among the arguments. Numbers
        that a reduction starts from are there if they are the dtype's."""
        if func.overloadpacket.__name__ in _SELECTS:
            return True
        starts = (value for value in (*args, *kwargs.values()) if isinstance(value, float))
        by_choice = any(isinstance(value, str) and value in _REDUCES for value in args)
        return by_choice and all(value == float(torch.tensor(value, dtype=self.dtype)) for value in starts)

    def _is_wider(self, func: Any, inputs: set[int]) -> bool:
        """Are all results but the first of a wider dtype? The logarithms of sums of weights are, and statistics in the
        dtype of wide weights."""
        if func is attention.FLASH_FORWARD:
            return not self.fine
        return func in _NORMALISING and not self.wide.isdisjoint(inputs)

    def _round(self, tensor: torch.Tensor, inexact: bool) -> None:
        if tensor.dtype is torch.float64:
            if inexact:
                # Equal numbers alike, as a library is: else a choice among them falls as chance has it. Float64's own
                # functions are off by an ulp of theirs, by the place of an element.
                drawn = numbers_by_value(tensor.data.to(torch.float32), self.seed)
                tensor.data.mul_(drawn.mul_(2).sub_(1).mul_(ULP_FLOAT32).add_(1))
            tensor.data.copy_(self._narrowed(tensor))  # .data: no new version, autograd may have saved it
        elif tensor.dtype is torch.complex128:
            parts = torch.view_as_real(tensor.data.resolve_conj())
            parts.copy_(parts.to(self.dtype))

    def _narrowed(self, tensor: torch.Tensor) -> torch.Tensor:
        """Rounded to dtype. No rounding leads beyond its range where another device's steps are guessed in 16 bit: who
        overflows there, and divides by inf, has lost the number. The CPU's own kernels do overflow."""
        if self.computed:
            tensor = tensor * self._factors(tensor, COMPUTED)
        rounded = tensor.to(self.dtype)
        if self.by_chance:
            beyond = torch.where(rounded.double() < tensor, math.inf, -math.inf).to(rounded.dtype)
            other = torch.where(rounded.double() == tensor, rounded, rounded.nextafter(beyond))
            return torch.where(torch.rand(tensor.shape, generator=self.generator) < 0.5, rounded, other)
        if not self.fine or self.overflows or self.dtype is not torch.float16:
            return rounded
        return torch.where(rounded.isinf(), tensor, rounded.to(tensor.dtype))

    def _by_reciprocal(self, dividend: torch.Tensor, divisor: torch.Tensor | float) -> Any:
        if dividend.dtype is not torch.float64:
            return NotImplemented
        product = dividend * self._narrowed(torch.as_tensor(divisor, dtype=torch.float64).reciprocal())
        # The reciprocal of a subnormal number is beyond float32's range.
        return torch.where(product.isfinite(), product, dividend / divisor)

    def _factors(self, tensor: torch.Tensor, size: float) -> torch.Tensor:
        """A number near 1 for each element, at most so far off."""
        drawn = torch.rand(tensor.shape, generator=self.generator, dtype=torch.float64)
        return drawn.mul_(2).sub_(1).mul_(size).add_(1).to(tensor.device)


def mixed_by_value(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """The bits of each real number, mixed by the seed: alike for equal magnitudes."""
    mixed = tensor.abs().to(torch.float64).contiguous().view(torch.int64) ^ (torch.tensor(seed + 1) * _MIXED)
    for shift in (31, 29):
        mixed = (mixed ^ (mixed >> shift)) * _MIXED
    return mixed


def numbers_by_value(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """A number between 0 and 1 for each element, by chance and alike for equal magnitudes."""
    return ((mixed_by_value(tensor, seed) >> 16) & 0xFFFFFFFF).to(torch.float64) / 2.0**32


def storage(tensor: torch.Tensor) -> int:
    """Of tensors that share one, the same number."""
    address: int = tensor.untyped_storage()._cdata
    return address


def tensors_of(tree: Any) -> Iterator[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        if tree.layout is torch.strided:  # sparse gradients hold rows that were rounded before
            yield tree
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            yield from tensors_of(item)
    elif isinstance(tree, dict):
        yield from tensors_of(list(tree.values()))
