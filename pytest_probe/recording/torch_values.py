"""Tensors and other arguments of torch's calls as snapshots, with their statistics."""

from __future__ import annotations

import math
import weakref
import zlib
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from msgspec import UNSET

from pytest_probe.recording.config import CaptureConfig
from pytest_probe.recording.snapshot import Leaf, MemoryFormat, Seen, Tree, number
from pytest_probe.recording.statistics import fill_together, unusual

SMALL = 4096  # elements up to which a copy, and statistics of many together, cost less than statistics at once
TOGETHER = 32_768  # elements of many tensors: what the cache holds

_DTYPES = {dtype: str(dtype) for name in dir(torch) if isinstance(dtype := getattr(torch, name), torch.dtype)}
_NATIVE = frozenset((torch.float32, torch.float64))
_PLAIN = (torch.Tensor, torch.nn.Parameter)
# Of subclasses that compute as their data do, as parameters of one's own.
_FUNCTION = torch.nn.Parameter.__torch_function__
_ROW = 1024  # elements whose squares are summed in float32
_ROWS = 8192  # elements from which on that is faster


# The strides and extents by which memory is walked, from the innermost on, whatever order the dimensions have.
Layout: TypeAlias = tuple[tuple[int, int], ...]


class Group:
    """Snapshots of the same elements, whose statistics are the same: the first one's are filled in."""

    __slots__ = ("_done", "_layout", "seen")

    def __init__(self, seen: Seen, layout: Layout) -> None:
        self.seen = [seen]
        self._layout = layout
        self._done = False

    def join(self, seen: Seen, layout: Layout) -> bool:
        """Another view from the same address on: is it of the same elements?"""
        first = self.seen[0]
        if layout != self._layout or first.dtype != seen.dtype:
            return False
        # The writer's thread may finish meanwhile: whoever comes second fills this one in.
        self.seen.append(seen)
        if self._done:
            _fill(seen, first)
        return True

    def finish(self) -> None:
        """The first one's statistics are there."""
        self._done = True
        for seen in self.seen[1:]:
            _fill(seen, self.seen[0])


def _fill(seen: Seen, first: Seen) -> None:
    seen.max, seen.min, seen.mean, seen.norm = first.max, first.min, first.mean, first.norm
    seen.high, seen.low, seen.nan, seen.inf = first.high, first.low, first.nan, first.inf
    seen.true, seen.failed = first.true, first.failed


class Values:
    """Takes snapshots. Statistics of small tensors, and of those on other devices, are put off until `settle`."""

    def __init__(self, config: CaptureConfig) -> None:
        self.saves = config.task in ("tensor", "overflow_check")
        self._keeps = {dtype: _kind(dtype) in config.kinds for dtype in _DTYPES}
        self._counts = config.task in ("statistics", "tensor")
        self._sums = config.summary == "md5"
        # What was put off: copies of small tensors, and statistics that other devices compute.
        self._small: deque[tuple[torch.Tensor, Group]] = deque()
        self._far: deque[tuple[torch.Tensor, Group]] = deque()
        # By address: whose memory was seen there, its version then, and the snapshot.
        self._known: dict[int, tuple[Callable[[], Any], int, Group]] = {}
        self._untrusted: set[int] = set()
        self._taken = 0
        self.leaves = self._takers("scalar" in config.kinds)

    def _takers(self, scalars: bool) -> dict[type, Callable[[Any], Tree]]:
        def plain(kind: str) -> Callable[[Any], Tree]:
            return (lambda value: Leaf(kind, value)) if scalars else (lambda value: {})

        return {
            torch.Tensor: self.tensor,
            torch.nn.Parameter: self.tensor,
            type(None): lambda value: None,
            **{kind: plain(kind.__name__) for kind in (bool, int, str)},
            float: (lambda value: Leaf("float", number(value))) if scalars else plain("float"),
            complex: lambda value: Leaf("complex", [number(value.real), number(value.imag)]),
            slice: _slice,
            type(...): lambda value: Leaf("ellipsis", "..."),
            torch.Size: lambda value: Leaf("torch.Size", tuple(value)),
            torch.dtype: lambda value: Leaf("torch.dtype", _DTYPES[value]),
            torch.device: lambda value: Leaf("torch.device", f"{value.type}:{value.index}"),
            torch.memory_format: lambda value: MemoryFormat(str(value).removeprefix("torch.")),
            tuple: lambda value: tuple([self.take(item) for item in value]),
            list: lambda value: [self.take(item) for item in value],
            # An empty object is what was left out.
            dict: lambda value: {str(key): self.take(item) for key, item in value.items()} or Leaf("dict", {}),
        }

    def take(self, value: Any) -> Tree:
        """The snapshot of an argument or a result. Gradients must be off, and the recording mode."""
        return self.leaves.get(type(value), self.other)(value)

    def other(self, value: Any) -> Tree:
        if isinstance(value, torch.Tensor):
            own: Any = type(value)
            plain = own.__torch_function__ is _FUNCTION and own.__torch_dispatch__ is torch.Tensor.__torch_dispatch__
            return self.tensor(value) if plain else self._strange(value)
        if isinstance(value, np.generic):
            return self._numpy(value)
        for kind in (tuple, list, dict, bool, int, float, str):
            if isinstance(value, kind):
                return self.leaves[kind](value)
        return {"type": f"{type(value).__module__}.{type(value).__qualname__}"}

    def _numpy(self, value: np.generic) -> Tree:
        plain = value.item()
        if isinstance(plain, np.generic):  # what no Python number holds
            return {"type": f"numpy.{type(value).__qualname__}"}
        tree = self.take(plain)
        return Leaf(type(value).__name__, tree.value) if isinstance(tree, Leaf) else tree

    def _strange(self, tensor: torch.Tensor) -> Tree:
        """A tensor of a class or layout of its own: how it looks, without values."""
        kind = type(tensor)
        name = f"torch.{tensor.layout}" if kind in _PLAIN else f"{kind.__module__}.{kind.__qualname__}"
        return Seen(name, _DTYPES[tensor.dtype], tuple(tensor.shape), tensor.requires_grad)

    def tensor(self, tensor: torch.Tensor) -> Tree:
        """The snapshot of a plain tensor: the one that was made before, where torch's version counter says that nothing
        was written since."""
        if tensor.layout is not torch.strided:
            return self._strange(tensor)
        address = tensor.data_ptr()
        known = self._known.get(address)
        if known is None:
            return self._new(tensor, address, None)
        memory, version, group = known
        storage = tensor.untyped_storage()
        # The storage lives, so that it is the same memory, and no tensor on it was written to.
        if memory() is not storage or tensor._version != version:
            return self._new(tensor, address, None)
        if self._untrusted and storage.data_ptr() in self._untrusted:
            return self._new(tensor, address, None)
        seen = group.seen[0]
        shown = seen.shape == tensor.shape and seen.requires_grad is tensor.requires_grad
        if shown and seen.stride is UNSET and tensor.is_contiguous() and seen.dtype is _DTYPES[tensor.dtype]:
            return seen
        return self._new(tensor, address, group)

    def _new(self, tensor: torch.Tensor, address: int, twins: Group | None) -> Seen:
        """twins are snapshots of tensors that lie at the same place, unchanged."""
        shape, dtype = tensor.shape, tensor.dtype
        seen = Seen("torch.Tensor", _DTYPES[dtype], shape, tensor.requires_grad, address=address)
        contiguous = tensor.is_contiguous()
        if not contiguous:
            seen.stride = tensor.stride()
        size = tensor.numel()
        if not (size and self._keeps[dtype]) or tensor.is_meta:
            return seen
        if self.saves:
            seen.data = tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
            self._taken += seen.data.nbytes
        if self._counts:
            layout = ((1, size),) if contiguous else laid_out(tensor)
            if twins is not None and twins.join(seen, layout):
                return seen
            group = Group(seen, layout)
            if not tensor.is_cpu:
                self._far.append((vector(tensor), group))
                if self._sums:
                    seen.crc = crc(tensor)
            elif size <= SMALL:
                self._small.append((tensor.clone(), group))
            else:
                self._count_large(tensor, layout, group)
            # Tensors of inference mode have no versions.
            if not (self.saves or self._sums or tensor.is_inference()):
                self._known[address] = (weakref.ref(tensor.untyped_storage()), tensor._version, group)
        return seen

    def distrust(self, tensor: torch.Tensor) -> None:
        """This memory may be written to without torch counting it, until the step ends."""
        # Tensors without memory of their own raise when asked for it (uninitialized parameters, vmap's) or warn (fake
        # ones); no values of theirs are kept.
        with suppress(Exception):
            if not hasattr(tensor, "fake_mode"):
                self._untrusted.add(tensor.untyped_storage().data_ptr())

    def forget(self) -> None:
        """A step ends."""
        self._known.clear()
        self._untrusted.clear()

    def taken(self) -> int:
        """Bytes of data that were copied since the last time this was asked, and wait to be saved."""
        taken, self._taken = self._taken, 0
        return taken

    def settle(self) -> None:
        """Fill in all statistics that were put off; waits once for other devices."""
        groups: defaultdict[torch.dtype, list[tuple[torch.Tensor, Group]]] = defaultdict(list)
        waiting: Counter[torch.dtype] = Counter()
        for _ in range(len(self._small)):
            pair = self._small.popleft()
            dtype = pair[0].dtype
            groups[dtype].append(pair)
            waiting[dtype] += pair[0].numel()
            if waiting[dtype] > TOGETHER:
                self._settle_together(groups.pop(dtype))
                waiting[dtype] = 0
        for pairs in groups.values():
            self._settle_together(pairs)
        self._settle_far()

    def _settle_together(self, pairs: list[tuple[torch.Tensor, Group]]) -> None:
        count_together([tensor for tensor, _ in pairs], [group.seen[0] for _, group in pairs])
        for tensor, group in pairs:
            if self._sums:
                group.seen[0].crc = crc(tensor)
            group.finish()

    def _count_large(self, tensor: torch.Tensor, layout: Layout, group: Group) -> None:
        seen = group.seen[0]
        try:
            if self._sums:
                seen.crc = crc(tensor)
            size = tensor.numel()
            # In the order of the memory, where it has no gaps.
            count_large(tensor.as_strided((size,), (1,)) if layout == ((1, size),) else tensor, seen)
        except Exception as error:
            seen.failed = f"{type(error).__name__}: {error}"
        group.finish()

    def _settle_far(self) -> None:
        devices: defaultdict[torch.device, list[tuple[torch.Tensor, Group]]] = defaultdict(list)
        for _ in range(len(self._far)):
            pair = self._far.popleft()
            devices[pair[0].device].append(pair)
        for device, pairs in devices.items():
            # They were computed on the program's streams, and are read on this thread's.
            torch.accelerator.synchronize(device)
            for row, (_, group) in zip(torch.stack([numbers for numbers, _ in pairs]).tolist(), pairs, strict=True):
                unpack(row, group.seen[0])
                group.finish()

    def waits(self) -> bool:
        """Would `settle` wait for a device?"""
        return bool(self._far)

    def save(self, tensor: torch.Tensor, path: Path) -> None:
        with open(path, "wb") as file:
            torch.save(tensor, file)


def count_together(tensors: Sequence[torch.Tensor], seen: Sequence[Seen]) -> None:
    """Fill in the statistics of small CPU tensors of one dtype."""
    try:
        values = to_numpy(torch.cat([tensor.reshape(-1) for tensor in tensors]))
        fill_together(values, [tensor.numel() for tensor in tensors], seen)
    except Exception as error:
        for one in seen:
            one.failed = f"{type(error).__name__}: {error}"


def _kind(dtype: torch.dtype) -> str:
    if dtype.is_floating_point or dtype.is_complex:
        return "float"
    return "bool" if dtype is torch.bool else "int"


def _slice(value: slice) -> Leaf:
    parts = (value.start, value.stop, value.step)
    # A tensor as a bound is an index; reading it waits for the device, as the call itself does.
    return Leaf("slice", [None if part is None else int(part) for part in parts])


def laid_out(tensor: torch.Tensor) -> Layout:
    """Where the elements lie. Views of one address with the same layout hold the same elements; ((1, n),) is a piece of
    memory without gaps."""
    found: list[tuple[int, int]] = []
    for stride, extent in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if extent == 1:
            continue
        if found and stride == found[-1][0] * found[-1][1]:
            found[-1] = (found[-1][0], found[-1][1] * extent)
        else:
            found.append((stride, extent))
    return tuple(found) or ((1, 1),)


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The values of a CPU tensor of any dtype, as NumPy can sum them up: complex ones by their absolute values."""
    if tensor.is_complex():
        tensor = tensor.abs()
    if tensor.dtype.is_floating_point and tensor.dtype not in _NATIVE:
        tensor = tensor.float()
    array: np.ndarray = tensor.detach().numpy()
    return array


def count_large(tensor: torch.Tensor, seen: Seen) -> None:
    """Fill in the statistics of a large CPU tensor."""
    tensor = tensor.detach()
    flat = tensor.reshape(-1)
    if flat.dtype is torch.bool:
        seen.true = int(flat.count_nonzero())
        seen.max, seen.min = seen.true > 0, seen.true == flat.numel()
        return
    if flat.is_complex():
        flat = flat.abs()
    elif flat.dtype.itemsize == 1 and flat.is_floating_point():
        flat = flat.float()
    low, high = (extreme.item() for extreme in torch.aminmax(flat))
    seen.max, seen.min = high, low
    seen.mean = flat.sum(dtype=torch.float64).item() / flat.numel()
    seen.norm = _norm(flat, max(high, -low))
    if not math.isfinite(seen.norm):
        unusual(seen, to_numpy(flat).astype(np.float64))


def _norm(flat: torch.Tensor, top: float) -> float:
    """The 2-norm of elements of at most top. Where squares neither overflow nor vanish, rows are summed in float32,
    which is right to about seven digits and takes a third of the time; a mean, where terms cancel, has no such way."""
    narrow = flat.is_floating_point() and flat.dtype is not torch.float64
    if not narrow or flat.numel() < _ROWS or not 1e-10 < top < 1e15:
        wide = flat if flat.is_floating_point() else flat.to(torch.float64)
        return float(torch.linalg.vector_norm(wide, dtype=torch.float64))
    rows, rest = divmod(flat.numel(), _ROW)
    whole = flat if not rest else flat[: rows * _ROW]
    norms = torch.linalg.vector_norm(whole.view(rows, _ROW), dim=1, dtype=torch.float32)
    if rest:
        norms = torch.cat((norms, torch.linalg.vector_norm(flat[rows * _ROW :], dtype=torch.float32).view(1)))
    return float(torch.linalg.vector_norm(norms, dtype=torch.float64))


def crc(tensor: torch.Tensor) -> str:
    """CRC-32 of the elements in their order, as msprobe's md5: 8 hex digits."""
    ordered = tensor.detach().cpu().contiguous().view(-1)
    data: Any = ordered.view(torch.uint8).numpy()
    return f"{zlib.crc32(data):08x}"


def vector(tensor: torch.Tensor) -> torch.Tensor:
    """Statistics where the tensor is: max, min, mean, norm, NaN, inf and non-zero elements, shape (7,)."""
    values = tensor.abs() if tensor.is_complex() else tensor
    wide = values.to(torch.float32 if tensor.device.type == "mps" else torch.float64)
    parts = (wide.max(), wide.min(), wide.mean(), torch.linalg.vector_norm(wide))
    counts = (wide.isnan().sum(), wide.isinf().sum(), wide.count_nonzero())
    return torch.stack([*parts, *(count.to(wide.dtype) for count in counts)])


def unpack(row: list[float], seen: Seen) -> None:
    """Fill in statistics that a device computed."""
    high, low, mean, norm, nan, inf, true = row
    if seen.dtype == "torch.bool":
        seen.max, seen.min, seen.true = high > 0, low > 0, round(true)
        return
    exact = "int" in seen.dtype
    seen.max, seen.min = (round(high), round(low)) if exact else (number(high), number(low))
    seen.mean, seen.norm = number(mean), number(norm)
    if nan or inf:
        seen.nan, seen.inf = round(nan), round(inf)
