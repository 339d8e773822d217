"""Tensors and other arguments of Paddle's calls as snapshots, with their statistics.

The memory of CPU tensors is read where it lies: Paddle is asked for nothing that would be a call of its own.

Statistics of CPU tensors come from the memory itself, through NumPy: a function of Paddle's would be a call of its own,
and take longer. Those of other devices' tensors are computed there, in float64, which autocast leaves alone.
"""

from __future__ import annotations

import math
import pickle
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from ctypes import string_at
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import msgspec
import numpy as np
import paddle
import paddle.distributed as dist
from msgspec import UNSET

from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.frequent_values import Places, fill_from_samples, layout_of, memory_at, places, span
from pytest_probe.capture.snapshot import PlainEntry, Seen, Tree
from pytest_probe.capture.statistics import (
    COUNTED,
    SMALL_BYTES,
    ArraySnapshots,
    countable,
    fill_from_row,
    fill_small_from,
)
from pytest_probe.frameworks.paddle.arrays import FLOATS, SIZES, name_of
from pytest_probe.numerics.arrays import contiguous

# Statistics of tensors that lie on another device than the CPU: computed there, and fetched many at once.
#
# Paddle's own operators compute them, taken before any capture replaces what modules hold. In float64, which autocast
# leaves as it is.


_abs, _assign, _cast, _concat, _equal, _max, _min, _sum = (
    getattr(paddle._C_ops, name) for name in "abs assign cast concat equal max min sum".split()
)
_as_strided, _flatten, _full_like, _isnan, _square, _stack = (
    getattr(paddle._C_ops, name) for name in "as_strided flatten full_like isnan square stack".split()
)
_WIDE: Any = paddle.float64

# Statistics and a sample, where there is one, as tensors of their device.
_Waiting: TypeAlias = tuple[Any, Any, Places | None, Seen]


class DistantStatistics:
    """Statistics that devices compute, until they are fetched."""

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()
        # What a device has no kernels for, by device and dtype.
        self._unable: set[tuple[str, str]] = set()

    def __bool__(self) -> bool:
        """Do any wait?"""
        return bool(self._waiting)

    def count(self, tensor: Any, seen: Seen, sampled: bool) -> bool:
        """Begin to compute the statistics of a dense tensor with elements; sampled: and take a sample. False where the
        device cannot."""
        where = (str(tensor.place), seen.dtype)
        if where in self._unable:
            return False
        try:
            alone = tensor.detach()
            found = places(seen.shape, layout_of(seen.shape, tuple(tensor.strides)), tensor.is_contiguous())
            # The offset counts bytes, from where the memory begins.
            view = (list(found.shape), list(found.strides), alone.offset)
            sample = _assign(_as_strided(alone, *view)) if sampled else None
            self._waiting.append((_vector(alone, seen.dtype), sample, found if sampled else None, seen))
        except RuntimeError:
            self._unable.add(where)
            return False
        return True

    def settle(self) -> None:
        """Fetch what waits, in one copy for each device."""
        devices: defaultdict[str, list[_Waiting]] = defaultdict(list)
        for _ in range(len(self._waiting)):
            one = self._waiting.popleft()
            devices[str(one[0].place)].append(one)
        for ones in devices.values():
            _fill(ones)


def _vector(tensor: Any, dtype: str) -> Any:
    """Max, min, sum, sum of squares, NaN, inf and -inf, shape (7,): of complex numbers' absolute values, as they would
    be in float64."""
    wide = _cast(_abs(tensor) if dtype.startswith("complex") else tensor, _WIDE)
    infinities = [_equal(wide, _full_like(wide, value, _WIDE, tensor.place)) for value in (math.inf, -math.inf)]
    summed = [wide, _square(wide), *(_cast(flag, _WIDE) for flag in (_isnan(wide), *infinities))]
    return _stack([_max(wide, [], False), _min(wide, [], False), *(_sum(one, [], None, False) for one in summed)], 0)


def _fill(ones: list[_Waiting]) -> None:
    """Fill in what one device has computed, or what it says of a fault."""
    try:
        rows = _stack([numbers for numbers, *_ in ones], 0)
        looked = [(sample, where, seen) for _, sample, where, seen in ones if where is not None]
        samples = [_flatten(_cast(sample, _WIDE), 0, -1) for sample, _, _ in looked]
        found: np.ndarray = _concat([_flatten(rows, 0, -1), *samples], 0).numpy()
        count = 7 * len(ones)
        for row, (*_, seen) in zip(found[:count].reshape(-1, 7).tolist(), ones, strict=True):
            fill_from_row(seen, math.prod(seen.shape), [*row, math.inf])
        if looked:
            fill_from_samples(found[count:], [where for _, where, _ in looked], [seen for *_, seen in looked])
    except Exception as error:
        for *_, seen in ones:
            seen.failed = f"{type(error).__name__}: {error}"


_NAMES: Mapping[Any, str] = {
    dtype: name_of(dtype) for name in dir(paddle) if isinstance(dtype := getattr(paddle, name), paddle.dtype)
}
# By their names Paddle's dtypes as NumPy and ml_dtypes have them. Others have no values here.
_ARRAYS: Mapping[str, np.dtype[Any]] = {
    name: np.dtype(getattr(ml_dtypes, name, name))
    for name in _NAMES.values()
    if hasattr(ml_dtypes, name) or hasattr(np, name)
}
_FLOATS = frozenset(map(name_of, FLOATS))
# Classes whose tensors are taken as they are.
_PLAIN = (paddle.Tensor, paddle.base.framework.EagerParamBase)
# Where every tensor lies, unless Paddle was built for a device, or one was plugged in.
_Place = paddle.base.core.Place


class _Known(msgspec.Struct, gc=False):
    """A tensor that was seen: itself, its version then, where its memory begins, how often that had been written to
    without a version, and the snapshot."""

    tensor: Callable[[], Any]
    version: int
    memory: int
    writes: int
    seen: Seen


class Values(ArraySnapshots):
    """Takes snapshots. Statistics of small tensors are put off until `settle`."""

    dtypes = _ARRAYS
    floats = _FLOATS

    pythons: Mapping[type, Any] = {
        float: paddle.float64,
        int: paddle.int64,
        bool: paddle.bool,
        complex: paddle.complex128,
    }

    def __init__(self, config: CaptureConfig) -> None:
        super().__init__(config)
        self._remembers = self._counts and not (self._kept or self._sums)
        self._known: dict[int, _Known] = {}
        # By address: how often memory was written to without a version.
        self._writes: defaultdict[int, int] = defaultdict(int)
        self._far = may_be_far()
        self._distant = DistantStatistics()
        text = self.leaves[str]
        kinds = (getattr(paddle, name, None) for name in ("CPUPlace", "CUDAPlace", "CUDAPinnedPlace", "XPUPlace"))
        places = [kind for kind in kinds if isinstance(kind, type)]
        self.leaves.update(
            {
                **dict.fromkeys(_PLAIN, self.tensor),
                paddle.dtype: lambda value: PlainEntry("paddle.dtype", name_of(value)),
                # Paddle takes the name of a dtype in its place.
                str: lambda value: PlainEntry("paddle.dtype", value) if value in _ARRAYS else text(value),
                **dict.fromkeys(SIZES, lambda value: [self.take(int(item)) for item in value]),
                _GROUP: lambda value: {"type": "paddle.ProcessGroup", "group_ranks": list(value.ranks)},
                **dict.fromkeys((_Place, *_Place.__subclasses__(), *places), place),
            }
        )

    def other(self, value: Any) -> Tree:
        return self._strange(value) if isinstance(value, paddle.Tensor) else super().other(value)

    def _strange(self, tensor: Any) -> Tree:
        """A tensor of a class or layout of its own: how it looks, without values."""
        kind = type(tensor)
        name = "paddle.sparse" if kind in _PLAIN else f"{kind.__module__}.{kind.__qualname__}"
        return Seen(name, _NAMES.get(tensor.dtype, str(tensor.dtype)), tuple(tensor.shape), not tensor.stop_gradient)

    def tensor(self, tensor: Any) -> Tree:
        """The snapshot of a tensor: the one that was made before, where nothing was written since."""
        known = self._known.get(id(tensor))
        if known is not None and known.tensor() is tensor:
            seen = known.seen
            same = (
                tensor._inplace_version() == known.version
                and self._writes.get(known.memory, 0) == known.writes
                and _address(tensor) == seen.address
                and tuple(tensor.shape) == seen.shape
            )
            if same and seen.requires_grad is self._wants(tensor, seen.dtype):
                return seen
        return self._new(tensor)

    def _wants(self, tensor: Any, dtype: str) -> bool:
        # Of integers, too, Paddle says that they have a gradient.
        return not tensor.stop_gradient and dtype in _FLOATS

    def _new(self, tensor: Any) -> Tree:
        if not tensor.is_dense() or tensor.is_dist():
            return self._strange(tensor)
        dtype, shape = _NAMES.get(tensor.dtype) or str(tensor.dtype), tuple(tensor.shape)
        address = _address(tensor)
        seen = Seen("paddle.Tensor", dtype, shape, self._wants(tensor, dtype), address=address)
        width = self._widths.get(dtype, 0)
        # Without an address: empty ones, and those whose memory was freed.
        if not (address and width):
            if self._kept and width:
                # What nobody wrote may hold anything.
                seen.data = np.zeros(shape, _ARRAYS[dtype])
            return seen
        near = not self._far or _is_near(tensor)
        if not tensor.is_contiguous():
            seen.stride = tuple(tensor.strides)
        size = math.prod(shape) * width
        if near and size <= SMALL_BYTES and seen.stride is UNSET and not self._kept:
            # As `look` does it, without an array.
            if self._counts:
                count = math.prod(shape)
                number = -1 if self._sums else self._compiled.get(dtype, -1)
                if number < 0 or not fill_small_from(address, count, number, seen):
                    self._small.append((string_at(address, size), dtype, seen))
        elif near:
            self.look(_array(address, seen), seen, dtype, near=True)
        # On another device; where values are asked for, or it cannot count, a copy is looked at.
        elif self._kept or (
            self._counts and (self._sums or not self._distant.count(tensor, seen, sampled=dtype in _FLOATS))
        ):
            self.look(contiguous(np.asarray(tensor.numpy()).view(_ARRAYS[dtype])), seen, dtype, near=False)
        if self._remembers:
            memory = address - tensor.offset
            known = _Known(weakref.ref(tensor), tensor._inplace_version(), memory, self._writes.get(memory, 0), seen)
            self._known[id(tensor)] = known
        return seen

    def distrust(self, value: Any) -> None:
        """The memory of these tensors may be written to without Paddle counting it."""
        if isinstance(value, paddle.Tensor):
            if address := _address(value):
                self._writes[address - value.offset] += 1
        elif isinstance(value, list | tuple):
            for item in value:
                self.distrust(item)

    def forget(self) -> None:
        self._known.clear()
        self._writes.clear()

    def waits(self) -> bool:
        return bool(self._distant)

    def settle(self) -> None:
        self._settle_small()
        self._distant.settle()
        self._settle_samples()

    def save(self, data: np.ndarray, path: Path) -> None:
        """As paddle.save writes a tensor: a name and an array, bfloat16 as the uint16 that its bits are. It has no form
        for float8, which is float32 there."""
        known = data.dtype.kind in COUNTED
        stored = data if known else data.view(np.uint16) if data.dtype == _ARRAYS["bfloat16"] else countable(data)
        with open(path, "wb") as file:
            pickle.dump((path.stem, stored), file, protocol=4)


def place(value: Any) -> Tree:
    """Place(gpu:0) as "gpu:0"."""
    return PlainEntry("paddle.Place", str(value).removeprefix("Place(").removesuffix(")"))


def may_be_far() -> bool:
    """May tensors lie on another device than the CPU?"""
    built: bool = paddle.is_compiled_with_cuda() or paddle.is_compiled_with_xpu()
    return built or bool(paddle.device.get_all_custom_device_type())


def _is_near(tensor: Any) -> bool:
    near: bool = tensor.place.is_cpu_place()
    return near


def _address(tensor: Any) -> int:
    """Where its first element lies, 0 where it has none."""
    try:
        return tensor.data_ptr() or 0
    except RuntimeError:  # its shape was set, and no memory taken
        return 0


def _array(address: int, seen: Seen) -> np.ndarray:
    """A CPU tensor's own memory."""
    dtype = _ARRAYS[seen.dtype]
    if seen.stride is UNSET:
        size = math.prod(seen.shape) * dtype.itemsize
        return np.ndarray(seen.shape, dtype, memory_at(address, size))
    size = span(layout_of(seen.shape, seen.stride)) * dtype.itemsize
    strides = tuple(step * dtype.itemsize for step in seen.stride)
    return np.ndarray(seen.shape, dtype, memory_at(address, size), 0, strides)


# Collectives of paddle.distributed, and how their groups look in a dump.


_COLLECTIVES = (
    "all_reduce all_gather broadcast reduce reduce_scatter alltoall alltoall_single scatter gather send recv isend "
    "irecv barrier batch_isend_irecv".split()
)
_GROUP: Any = dist.communication.group.Group


def collectives() -> Iterator[tuple[str, Any]]:
    """By the names of their records. They write to tensors without Paddle counting it."""
    for name in _COLLECTIVES:
        if hasattr(dist, name):
            yield f"Distributed.{name}", getattr(dist, name)
