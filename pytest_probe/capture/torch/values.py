"""Tensors and other arguments of torch's calls as snapshots, with their statistics."""

from __future__ import annotations

import copy
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from ctypes import string_at
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import torch
from msgspec import UNSET

from pytest_probe.capture import kernel
from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.frequent_values import FEW, LOOKED, Layout, copy_sample, layout_of, places, span
from pytest_probe.capture.snapshot import MemoryFormat, PlainEntry, Seen, Tree
from pytest_probe.capture.statistics import (
    HUGE,
    MAX_KEPT_INTEGERS,
    SMALL_BYTES,
    CountedSnapshots,
    fill_from,
    fill_sample_from,
    fill_small_from,
)
from pytest_probe.capture.torch.device_statistics import DeviceStatistics, recorded_by_graph
from pytest_probe.capture.torch.scaled import Blocks
from pytest_probe.capture.torch.statistics import (
    SHARED,
    count_large,
    crc,
    faster_alone,
    to_numpy,
)
from pytest_probe.frameworks.torch.arrays import FLOAT4, in_order, to_array
from pytest_probe.numerics.arrays import contiguous
from pytest_probe.numerics.scaled import block_statistics

# str() of a dtype costs more than a look-up, and is asked for at every tensor.
_DTYPES = {dtype: str(dtype) for name in dir(torch) if isinstance(dtype := getattr(torch, name), torch.dtype)}
# What Python's numbers mean where a dtype is asked for.
_PYTHONS: dict[type, torch.dtype] = {
    float: torch.float64,
    int: torch.int64,
    bool: torch.bool,
    complex: torch.complex128,
}
# Of these dtypes a NumPy array may become a tensor.
_ARRAYS = frozenset(
    np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
)
# Classes whose tensors are taken as they are.
_PLAIN = (torch.Tensor, torch.nn.Parameter)
# Of subclasses that compute as their data do, as parameters of one's own.
_FUNCTIONS = tuple(getattr(kind.__torch_function__, "__func__", kind.__torch_function__) for kind in _PLAIN)


_STRIDED = torch.strided  # asked for at every tensor


class _Memory(msgspec.Struct, gc=False):
    """A storage on which tensors were seen: the version of the last one, and whether versions tell of every write."""

    storage: Callable[[], Any]
    version: int
    counted: bool

    def goes_on(self, version: int) -> bool:
        """A tensor of this version was seen on it. Do versions still tell of every write?"""
        # One that is lower than the last is of another counter: neither's version tells of the other's writes.
        self.counted = self.counted and version >= self.version
        self.version = version
        return self.counted


class _Known(msgspec.Struct, gc=False):
    """What was seen at an address: on which memory, its version then, the snapshot, and where its elements lie."""

    memory: _Memory
    version: int
    seen: Seen
    layout: Layout


class Values(CountedSnapshots):
    """Takes snapshots; gradients must be off, and the recording mode. Statistics of small tensors, and of those on
    other devices, are put off until `settle`."""

    def __init__(self, config: CaptureConfig) -> None:
        super().__init__(config)
        # Where copies of the values are kept until they are saved, "" where the tensors are: few calls overflow.
        self._shelf = {"tensor": "cpu", "overflow_check": ""}.get(config.task)
        # Bytes of an element, 0 where its values are not kept.
        self._widths = {dtype: dtype.itemsize if _kind(dtype) in config.kinds else 0 for dtype in _DTYPES}
        self.copies = self._shelf is not None or self._sums
        self.counts_blocks = self._counts and "float" in config.kinds
        # The dtypes that the compiled kernel knows, with their numbers; none where there is no kernel.
        self._compiled = {getattr(torch, name): number for name, number in kernel.numbers().items()}
        self._compiled_small = {} if self._sums else self._compiled
        self._devices: dict[torch.device, DeviceStatistics] = {}
        # What was put off as well: snapshots of the same elements as an earlier one.
        self._twins: deque[tuple[Seen, Seen]] = deque()
        # And checksums, of copies that come from a device.
        self._coming: deque[tuple[torch.Tensor, Seen]] = deque()
        self._known: dict[int, _Known] = {}
        self._memories: dict[int, _Memory] = {}
        self._shapes: dict[torch.Size, torch.Size] = {}
        self.leaves.update(
            {
                torch.Tensor: self.tensor,
                torch.nn.Parameter: self.tensor,
                list: self._together,
                tuple: lambda value: tuple(self._together(value)),
                torch.Size: lambda value: PlainEntry("torch.Size", tuple(value)),
                torch.dtype: lambda value: PlainEntry("torch.dtype", _DTYPES[value]),
                torch.device: lambda value: PlainEntry("torch.device", f"{value.type}:{value.index}"),
                # As a "value" msprobe's checker would hand it on as text.
                torch.layout: lambda value: {"type": "torch.layout", "layout": str(value)},
                torch.memory_format: lambda value: MemoryFormat(str(value).removeprefix("torch.")),
            }
        )
        # The same in C, of what is common: TorchHooks' calls use it.
        self.compiled = None if kernel.compiled is None else kernel.compiled.Values(self._needs())
        if self.compiled is not None and not self.copies:
            self.leaves.update(dict.fromkeys(_PLAIN, self.compiled.take))

    def _needs(self) -> SimpleNamespace:
        """What the kernel's Values work with, kernel/torch_values.c."""
        tensor, storage = torch.Tensor, torch.UntypedStorage
        return SimpleNamespace(
            Seen=Seen, Known=_Known, Memory=_Memory, PlainEntry=PlainEntry, UNSET=UNSET, strided=_STRIDED,
            known=self._known, memories=self._memories, shapes=self._shapes, leaves=self.leaves,
            small=self._small, samples=self._samples, twins=self._twins,
            dtypes=_DTYPES, compiled=self._compiled, widths=self._widths,
            tensor=self.tensor, new=self._new, count=self._count, other=self.other, together=self._together,
            layout_of=layout_of, places=places, copy_sample=copy_sample,
            Tensor=tensor, Parameter=torch.nn.Parameter, data_ptr=tensor.data_ptr, stride=tensor.stride,
            untyped_storage=tensor.untyped_storage, is_contiguous=tensor.is_contiguous, is_neg=tensor.is_neg,
            is_inference=tensor.is_inference, begin=storage.data_ptr, nbytes=storage.nbytes,
            resizable=storage.resizable, is_shared=self._is_shared,
            quick=not self.copies, counts=self._counts, remembers=not self.copies,
            scalars=self.scalars, small_bytes=SMALL_BYTES, kept_integers=MAX_KEPT_INTEGERS,
            few=FEW, looked=LOOKED, shared=SHARED,
        )  # fmt: skip

    pythons = _PYTHONS

    def _together(self, members: Sequence[Any]) -> list[Tree]:
        """The snapshots of a list's members: a device counts its tensors together."""
        first: Any = members[0] if members else None
        on = self._devices.get(first.device) if type(first) in _PLAIN and not self.copies else None
        with nullcontext() if on is None else on.together():
            return [self.take(member) for member in members]

    def other(self, value: Any) -> Tree:
        if not isinstance(value, torch.Tensor):
            return super().other(value)
        # One of a class of its own is as a plain one where it computes as that does.
        own: Any = type(value)
        functions = getattr(own.__torch_function__, "__func__", own.__torch_function__) in _FUNCTIONS
        if not functions or own.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            return self._strange(value)
        with torch._C.DisableTorchFunctionSubclass():
            return self.tensor(value)

    def array(self, array: np.ndarray) -> Tree:
        """A NumPy array, whose elements count in their order."""
        if array.dtype not in _ARRAYS:
            return {"type": f"numpy.ndarray of {array.dtype}"}
        if array.nbytes > HUGE:
            return Seen("numpy.ndarray", array.dtype.name, array.shape, False)
        tensor = torch.from_numpy(contiguous(array))
        seen = self._new(tensor, tensor.data_ptr(), None)
        # The copy's address will be another's.
        seen.type, seen.dtype, seen.address = "numpy.ndarray", array.dtype.name, UNSET
        return seen

    def _strange(self, tensor: torch.Tensor) -> Tree:
        """A tensor of a class or layout of its own: how it looks, without values."""
        kind = type(tensor)
        name = str(tensor.layout) if kind in _PLAIN else f"{kind.__module__}.{kind.__qualname__}"
        return Seen(name, _DTYPES[tensor.dtype], tuple(tensor.shape), tensor.requires_grad)

    def tensor(self, tensor: torch.Tensor) -> Tree:
        """The snapshot of a plain tensor: the one that was made before, where torch's version counter says that nothing
        was written since."""
        if tensor.layout is not _STRIDED:
            return self._strange(tensor)
        address = tensor.data_ptr()
        known = self._known.get(address)
        if known is None:
            return self._new(tensor, address, None)
        memory, seen = known.memory, known.seen
        # The storage lives, so that it is the same memory, and torch counts what is written to it. A negative view has
        # other numbers than its memory.
        if memory.storage() is not tensor.untyped_storage() or not memory.counted or tensor.is_neg():
            return self._new(tensor, address, None)
        unwritten = tensor._version == known.version == memory.version
        alike = seen.stride is UNSET and seen.shape == tensor.shape and tensor.is_contiguous()
        same = alike and seen.dtype is _DTYPES[tensor.dtype] and seen.requires_grad is tensor.requires_grad
        return seen if same and unwritten else self._new(tensor, address, known if unwritten else None)

    def _new(self, tensor: torch.Tensor, address: int, known: _Known | None) -> Tree:
        """known is the snapshot of a tensor that begins at the same place, unchanged."""
        try:
            shape, dtype = tensor.shape, tensor.dtype
            # One for all that are alike: Python's garbage collection runs the more often, the more are kept.
            shape = self._shapes.setdefault(shape, shape)
        except RuntimeError:  # nested tensors have many shapes
            return {"type": "torch.nested"}
        seen = Seen("torch.Tensor", _DTYPES[dtype], shape, tensor.requires_grad, address=address)
        contiguous = tensor.is_contiguous()
        if not contiguous:
            seen.stride = tensor.stride()
        size, width = tensor.numel(), self._widths[dtype]
        # Without an address: on meta, and torch's own tensors of zeros.
        if not (size and width and address):
            return seen
        layout = size if contiguous else layout_of(shape, seen.stride)
        storage = tensor.untyped_storage()
        begin = storage.data_ptr()
        if address + (size if contiguous else span(layout)) * width > begin + storage.nbytes():
            return seen  # programs free memory and keep the tensor, as FSDP does
        if self._shelf is not None:
            seen.data = in_order(tensor, self._shelf or tensor.device)
            self._taken += seen.data.nbytes
        if self._counts:
            if known is not None and known.layout == layout and known.seen.dtype == seen.dtype:
                self._twins.append((seen, known.seen))
                return seen
            negative = tensor.is_neg()
            self._count(tensor, seen, layout, size * width, negative)
            # Tensors of inference mode have no versions.
            if not (self.copies or negative or tensor.is_inference()):
                version = tensor._version
                memory = self._memory(storage, begin, version)
                if memory.counted:
                    self._known[address] = _Known(memory, version, seen, layout)
        return seen

    def _memory(self, storage: torch.UntypedStorage, address: int, version: int) -> _Memory:
        """What is known of the storage at an address, now that a tensor of this version was seen on it."""
        memory = self._memories.get(address)
        if memory is None or memory.storage() is not storage:
            # Others write as well to memory that torch did not allocate, as NumPy's, to that of several processes, and
            # to that of two storages.
            twins = memory is not None and memory.storage() is not None
            if memory is not None:
                memory.counted = False
            counted = not twins and storage.resizable() and not self._is_shared(storage)
            memory = self._memories[address] = _Memory(weakref.ref(storage), version, counted)
        else:
            memory.goes_on(version)
        return memory

    def _is_shared(self, storage: torch.UntypedStorage) -> bool:
        """May others write to it, so that torch does not count that? torch says so of all that lies on a GPU."""
        return storage.is_shared() and (storage.device.type == "cpu" or not self._on(storage.device).sees_others)

    def others_wrote(self) -> None:
        """A kernel of the program's own may have written to any memory."""
        self._known.clear()

    def _count(self, tensor: torch.Tensor, seen: Seen, layout: Layout, size: int, negative: bool) -> None:
        """Fill in the statistics of so many bytes, or put that off; negative: of a view whose numbers are those of its
        memory with the other sign."""
        if size <= SMALL_BYTES and tensor.is_cpu:
            self._count_small(tensor, seen, layout, size, negative)
            return
        looked = not negative and tensor.is_floating_point() and tensor.dtype is not FLOAT4
        where = places(tensor.shape, layout, seen.stride is UNSET) if looked else None
        if not tensor.is_cpu:
            # Its copies, this one and seen.data, are there when its row is, which the device writes after them.
            copied = in_order(tensor, "cpu") if self._sums else None
            self._on(tensor.device).count(tensor, seen, layout, where)
            if seen.failed is not UNSET:
                if recorded_by_graph(tensor.device):  # the copies too
                    seen.data = UNSET
                elif self.copies:
                    torch.accelerator.synchronize(tensor.device)
            elif copied is not None:
                self._taken += copied.nbytes
                self._coming.append((copied, seen))
            return
        if self._sums:
            seen.crc = crc(tensor)
        try:
            # In the order of the memory, where it has no gaps.
            flat = None if isinstance(layout, int) else tensor.reshape(-1).contiguous()
            address = seen.address if flat is None else flat.data_ptr()
            count = layout if isinstance(layout, int) else tensor.numel()
            number = -1 if negative else self._compiled.get(tensor.dtype, -1)
            if number < 0 or not faster_alone(count) or not fill_from(address, count, number, seen):
                count_large(tensor.as_strided((count,), (1,)) if flat is None else flat, seen)
            # By now a cache holds some of it.
            if where is not None and (number < 0 or not fill_sample_from(seen.address, number, where, seen)):
                sample = copy_sample(seen.address, tensor.dtype.itemsize, where)
                self._samples.append((sample, tensor.dtype, where, seen))
        except Exception as error:
            seen.failed = f"{type(error).__name__}: {error}"

    def _count_small(self, tensor: torch.Tensor, seen: Seen, layout: Layout, size: int, negative: bool) -> None:
        """As _count, of a small CPU tensor."""
        address, dtype = seen.address, tensor.dtype
        number = self._compiled_small.get(dtype, -1)
        # For all but a checksum any order will do. The kernel knows no complex numbers, which alone are conjugate.
        plain = number >= 0 or not (tensor.is_conj() or (self._sums and not tensor.is_contiguous()))
        if negative or not plain or not isinstance(layout, int):
            tensor = tensor.resolve_conj().resolve_neg().contiguous()
            address = tensor.data_ptr()
        if number < 0 or not fill_small_from(address, size // self._widths[dtype], number, seen):
            # A third of what a tensor's copy costs.
            self._small.append((string_at(address, size), dtype, seen))

    def _on(self, device: torch.device) -> DeviceStatistics:
        found = self._devices.get(device)
        return found if found is not None else self._devices.setdefault(device, DeviceStatistics(device, self))

    def with_blocks(self, seen: Tree, blocks: Blocks) -> Tree:
        """The snapshot of a tensor with what its blocks hold in addition."""
        if type(seen) is not Seen or not seen.address:
            return seen
        own = seen
        if not self.copies:
            # The snapshot may be in entries of other calls, which have no scales.
            own = copy.copy(seen)
            self._twins.append((own, seen))
        if isinstance(blocks.numbers, np.ndarray):
            own.blocks = block_statistics(blocks.numbers.tolist(), blocks.count)
        else:
            self._on(blocks.numbers.device).put_blocks(own, blocks.numbers, blocks.count)
        return own

    def distrust(self, value: Any) -> None:
        """The memory of these tensors may be written to without torch counting it."""
        if self.copies or not self._counts:
            return
        if isinstance(value, list | tuple):
            for item in value:
                self.distrust(item)
        if not isinstance(value, torch.Tensor) or hasattr(value, "fake_mode"):
            return
        # Tensors without memory of their own raise when asked for it (uninitialized parameters, vmap's) or warn (fake
        # ones); no values of theirs are kept.
        with suppress(Exception):
            storage = value.untyped_storage()
            self._memory(storage, storage.data_ptr(), 0).counted = False

    def forget(self) -> None:
        self._known.clear()
        self._shapes.clear()
        for key, one in list(self._memories.items()):
            if one.counted or one.storage() is None:
                del self._memories[key]

    def settle(self) -> None:
        # What these are filled from was put off before them.
        twins = [self._twins.popleft() for _ in range(len(self._twins))]
        coming = [self._coming.popleft() for _ in range(len(self._coming))]
        self._settle_small()
        for each in list(self._devices.values()):
            each.settle()
        self._settle_samples()
        for copied, seen in coming:
            seen.crc = crc(copied)
        for seen, first in twins:
            seen.max, seen.min, seen.mean, seen.norm = first.max, first.min, first.mean, first.norm
            seen.high, seen.low, seen.nan, seen.inf = first.high, first.low, first.nan, first.inf
            seen.negative_inf, seen.zeros, seen.mode = first.negative_inf, first.zeros, first.mode
            seen.true, seen.failed = first.true, first.failed
            # A view of the same elements may have them in another order, and other rows.
            if seen.stride == first.stride and tuple(seen.shape[-1:]) == tuple(first.shape[-1:]):
                seen.constant_rows = first.constant_rows
            seen.values = first.values if seen.stride is UNSET else UNSET

    def numbers(self, parts: Sequence[bytes], dtype: torch.dtype) -> np.ndarray:
        return to_numpy(torch.frombuffer(bytearray().join(parts), dtype=dtype))

    def waits(self) -> bool:
        return any(each.waits() for each in list(self._devices.values()))

    def save(self, tensor: torch.Tensor, path: Path) -> None:
        if not tensor.is_cpu:
            torch.accelerator.synchronize(tensor.device)
            tensor = tensor.cpu()
        with open(path, "wb") as file:
            torch.save(tensor, file)

    def stored(self, tensor: torch.Tensor) -> np.ndarray:
        if not tensor.is_cpu:
            torch.accelerator.synchronize(tensor.device)
        return to_array(tensor.cpu())


def _kind(dtype: torch.dtype) -> str:
    if dtype.is_floating_point or dtype.is_complex:
        return "float"
    return "bool" if dtype is torch.bool else "int"
