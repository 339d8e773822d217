"""PyTorch: how much memory a call would take, found before it takes any.

A bound that costs microseconds lets most calls pass. The others run once on fake tensors, which have shapes and no
memory; where values decide on a shape (one_hot without a number of classes), once more on real ones with every kernel
asked first what it will make.
"""

from __future__ import annotations

import functools
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from msgspec.structs import replace
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

from pytest_probe.frameworks.torch.arrays import to_tensor, widened
from pytest_probe.frameworks.torch.calls import CALLS, TorchBound
from pytest_probe.frameworks.torch.kernels import DispatchMode, KernelsBy
from pytest_probe.model.dump import SizeSpec, leaves
from pytest_probe.model.run import Arguments, Array, Leaf, Way
from pytest_probe.user_errors import message_of

# These give what they take in another shape, whatever numbers they are given.
_RESHAPING = frozenset(
    "chunk clone contiguous detach flatten movedim narrow permute reshape reshape_as select size split squeeze "
    "swapaxes swapdims t to transpose unbind unflatten unsqueeze view view_as".split()
)
# A product of two arguments is no bound on what these make of three.
_UNBOUNDED = frozenset("block_diag cartesian_prod combinations einsum meshgrid".split())
# Numbers that these take are no sizes, but dimensions, classes, shares, or what their tensors have already.
_WITHOUT_SIZES = frozenset(
    "argmax argmin avg_pool1d avg_pool2d avg_pool3d batch_norm cat concat cross_entropy cumsum dropout embedding "
    "gather group_norm instance_norm layer_norm linear log_softmax logsumexp max max_pool1d max_pool2d max_pool3d mean "
    "min multi_head_attention_forward nll_loss norm normalize rms_norm scaled_dot_product_attention softmax sort "
    "stack std sum topk tril triu var vector_norm".split()
)
_TENSORS = (Leaf, Array)
# The numbers in their tensors are sizes.
_COUNTING = frozenset("bincount ctc_loss one_hot repeat_interleave".split())
# What is beyond torch's own count of bytes, and what it says then.
_BEYOND, _OVERFLOWED = 1 << 63, "calculation overflowed"
# Tensors that a kernel may hold beyond what its arguments' sizes show: the coordinates of nonzero,
# copies.
_SLACK = 16
# Whose numbers are the sizes of what they make, and nothing else.
_SIZED = frozenset(("empty", "ones", "rand", "randn", "zeros"))
# Values decide on a shape, or there is no kernel that tells it.
_NOT_KNOWN = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException)


def bytes_inside(name: str, function: Callable[..., Any], arguments: Arguments, way: Way, limit: int) -> int:
    """Bytes of tensors that a run holds at a time, its arguments apart; see Framework.bytes_inside."""
    enough = limit / (8 * _SLACK)
    if _bound(name, arguments.args, arguments.kwargs, enough) <= enough:
        return 0
    way = replace(way, place="cpu")
    with _quiet(), CALLS.surroundings(way, grad=False), _fake():
        bound = _FakeBound(arguments, way, None)
        held = _Held()
        try:
            with held:
                result = function(*bound.args, **bound.kwargs)
            outputs: int = sum(map(_dense, tree_leaves(result)))
            return max(held.peak, outputs)
        except _NOT_KNOWN:
            pass
        except Exception as error:  # it raises on the real arguments, too
            return _BEYOND if _OVERFLOWED in message_of(error) else held.peak
    return held.peak if held.peak > limit else _watched(function, arguments, way, limit)


def _bound(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], enough: float) -> float:
    """More elements than these a kernel of the call makes only by a small factor; a rougher bound that says enough is
    not refined."""
    if name in _RESHAPING:
        return 0.0
    if name in _UNBOUNDED:
        return math.inf
    if name in ("arange", "range"):
        return _steps(args, kwargs)
    shapes: list[tuple[int, ...]] = []
    numbers = [1.0]
    for _, value in leaves((*args, *kwargs.values())):
        if isinstance(value, _TENSORS) and value.array.ndim:
            shapes.append(value.array.shape)
            if name in _COUNTING and value.array.dtype.kind in "iu" and value.array.size:
                numbers.append(1.0 + abs(int(value.array.max())))
        elif value is not None:
            numbers += _numbers(value)
    if name in _SIZED:
        return math.prod(numbers)
    # One number may count for each of three dimensions: a kernel's size, a scale. A power would raise for inf.
    factor = 1.0 if name in _WITHOUT_SIZES else math.prod(numbers) * max(numbers) * max(numbers)
    rough = factor * max(map(max, shapes), default=1)
    for shape in shapes:
        rough *= math.prod(shape) or 1
    if rough <= enough:
        return rough
    return _broadcast(shapes) if _is_pointwise(name) else _of_tensors(shapes) * factor


def _of_tensors(shapes: Sequence[tuple[int, ...]]) -> float:
    """Elements of what tensors make: products of two of them, of one's size with a dimension of its own, copies."""
    sizes = sorted(map(math.prod, shapes), reverse=True)
    if len(sizes) < 2:
        return sizes[0] * max(shapes[0]) if sizes else 1
    return max(sizes[0] * sizes[1], sum(sizes), _broadcast(shapes), 1)


def _steps(args: Sequence[Any], kwargs: Mapping[str, Any]) -> float:
    """How many numbers a range has; any where a tensor says where it ends."""
    given = [value for value in (*args, *kwargs.values()) if value is not None]
    numbers = [float(value) for value in given if type(value) in (int, float)]
    if any(isinstance(value, Leaf) for value in given) or not all(map(math.isfinite, numbers)):
        return math.inf
    least = min((abs(value) for value in numbers if value), default=1.0)
    return 2 * max(map(abs, numbers), default=0.0) / min(least, 1.0) + 1


def _numbers(value: Any) -> Sequence[float]:
    """What a number, or a tensor that is one, adds to the bound."""
    if isinstance(value, _TENSORS):
        value = value.array.item() if value.array.dtype.kind in "iuf" else 0
    if isinstance(value, SizeSpec):
        return [float(abs(extent)) for extent in value.shape if extent]
    return (float(abs(value)),) if type(value) in (int, float) and abs(value) > 1 else ()


@functools.cache
def _is_pointwise(name: str) -> bool:
    """Does torch say that each element of the API's output comes of one element of each argument?"""
    packet = getattr(torch.ops.aten, name, None)
    overloads = [] if packet is None else [getattr(packet, overload) for overload in packet.overloads()]
    return any(torch.Tag.pointwise in overload.tags for overload in overloads)


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> float:
    try:
        return math.prod(np.broadcast_shapes(*shapes))
    except ValueError:
        return 0.0  # it will raise


class _FakeBound(TorchBound):
    """Arguments as fake tensors; a single number keeps its value, since it may be a size."""

    def tensor(self, leaf: Leaf, name: str) -> torch.Tensor:
        dtype = widened(to_tensor(np.empty(0, leaf.array.dtype)), self.way.dtype).dtype
        if not leaf.array.ndim:
            return torch.tensor(leaf.array.item(), dtype=dtype)
        if leaf.strides is None:
            return torch.empty(leaf.array.shape, dtype=dtype)
        return torch.empty_strided(leaf.array.shape, leaf.strides, dtype=dtype)


def _fake(real: bool = False) -> FakeTensorMode:
    # Without fallback kernels, which would take the memory that is asked about.
    return FakeTensorMode(allow_fallback_kernels=False, allow_non_fake_inputs=real)


class _Held(DispatchMode):
    """Adds up the memory of the tensors that are there at a time."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._storages: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            if isinstance(value, torch.Tensor) and value.layout is torch.strided:
                storage = value.untyped_storage()
                self._storages[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())  # type: ignore[no-untyped-call]
        self._storages = {key: held for key, held in self._storages.items() if not held[0].expired()}  # type: ignore[no-untyped-call]
        self.peak = max(self.peak, sum(size for _, size in self._storages.values()))
        return result


def _dense(value: Any) -> int:
    """Bytes of an output once it is an array: an expanded tensor in full."""
    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0


class _TooMuch(Exception):
    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


def _watched(function: Callable[..., Any], arguments: Arguments, way: Way, limit: int) -> int:
    """Bytes that a kernel of the call would make beyond the limit, on the real arguments; 0 where none does."""

    def refusing(kernel: Any, args: Any, kwargs: Any) -> Any:
        size = _made_by(kernel, args, kwargs)
        if size > limit:
            raise _TooMuch(size)
        return kernel(*args, **kwargs)

    with CALLS.surroundings(way, grad=False):
        bound = CALLS.bind(arguments, way)
        with _quiet(), KernelsBy(refusing):
            try:
                function(*bound.args, **bound.kwargs)
            except _TooMuch as refused:
                return refused.size
            except Exception:
                return 0  # as the run itself will
    return 0


def _made_by(kernel: Any, args: Any, kwargs: Any) -> int:
    """The bytes that a kernel makes."""
    rule = _BY_VALUES.get(kernel.overloadpacket.__name__)
    if rule is not None:
        return rule(*args, **kwargs)
    try:
        with _fake(real=True):
            return sum(map(_dense, tree_leaves(kernel(*args, **kwargs))))
    except Exception as error:
        return _BEYOND if _OVERFLOWED in message_of(error) else 0


def _aligned(log_probs: torch.Tensor, targets: Any, input_lengths: Any, target_lengths: Any, *others: Any) -> int:
    longest = max(map(int, target_lengths), default=0)
    return 8 * math.prod(log_probs.shape[:-1]) * (2 * longest + 1)


def _binned(values: torch.Tensor, bins: Any, *others: Any, **named: Any) -> int:
    each = bins if isinstance(bins, (list, tuple)) else [bins]
    return 8 * math.prod(count.numel() if isinstance(count, torch.Tensor) else count for count in each)


# Kernels whose output's size is known by the values of their arguments alone, or has no rule of torch's.
_BY_VALUES: Mapping[str, Callable[..., int]] = {
    "repeat_interleave": lambda repeats, **others: 8 * int(repeats.sum()),
    "bincount": lambda values, weights=None, minlength=0: (
        8 * max(int(values.max()) + 1 if values.numel() else 0, minlength)
    ),
    # The kernel counts along the mask, broadcast, whatever that selects.
    "masked_select": lambda tensor, mask: 8 * math.prod(np.broadcast_shapes(tensor.shape, mask.shape)),
    "_ctc_loss": _aligned,
    "histogram": _binned,
    "_histogramdd_bin_edges": _binned,
    "_histogramdd_from_bin_cts": _binned,
}


@contextmanager
def _quiet() -> Iterator[None]:
    """torch logs every error of a fake run, and warns as it does on real tensors."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before, log.disabled = log.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.disabled = before
