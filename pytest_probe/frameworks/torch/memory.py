"""PyTorch: where tensors lie, and what shows that a call touches memory that is not its own."""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import numpy as np
import torch

from pytest_probe.frameworks.torch.arrays import to_tensor
from pytest_probe.frameworks.torch.kernels import KernelsBy
from pytest_probe.numerics.arrays import are_apart, span
from pytest_probe.system.process import NEGATIVE, POSITIVE, filled_allocations

# What a tensor's own start is a multiple of, as torch's allocators have it, in bytes.
_ALIGNMENT = 64
# The operators that give memory which nobody has written to.
_EMPTY = frozenset(
    f"aten::{name}" for name in ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
)
# Blocks that are filled and freed: an allocator gives one of the last ones back. Several large ones would go back to
# the system.
_BLOCKS, _LARGE = 4, 1 << 20
# Side of the matrices whose product keeps another stream waiting: a third of a millisecond of an H200's.
_BUSY = 2048
# mprotect's PROT_NONE, which Python has no name for.
_NO_ACCESS = 0


def _filled(size: int, dtype: torch.dtype, number: float, place: torch.device) -> torch.Tensor:
    """So many elements of a number, or of the dtype's largest finite one where it is beyond. Integers get 0 or 1, which
    any index may be, since what is read by mistake must not end the process."""
    value: float = 0 if math.isnan(number) else 1
    if dtype.is_floating_point or dtype.is_complex:
        value = number if math.isnan(number) else min(number, torch.finfo(dtype).max)
    if dtype.itemsize > 1 or not dtype.is_floating_point:
        return torch.full((size,), value, dtype=dtype, device=place)
    return torch.full((size,), value, dtype=torch.float32).to(dtype).to(place)


def fill(tensor: torch.Tensor, number: float) -> None:
    """Write a number to each element."""
    with torch.no_grad():
        tensor.copy_(_pattern(tensor.dtype, number, 1, tensor.device)[0].view(tensor.dtype)[0])


def _is_plain(tensor: torch.Tensor) -> bool:
    """Has each element a place of its own in memory that is known?"""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
        return False
    if not tensor.numel() or tensor.is_conj() or tensor.is_neg() or tensor.is_quantized:
        return False
    return are_apart(tensor.shape, tensor.stride())


def _at(memory: torch.Tensor, start: int, like: torch.Tensor) -> torch.Tensor:
    """A tensor's copy that begins at that byte of a memory, laid out alike."""
    size = like.element_size()
    first, count = like.storage_offset() * size, span(like.shape, like.stride()) * size
    # What lies in memory from its first element to its last.
    whole = torch.empty(0, dtype=torch.uint8, device=like.device).set_(like.untyped_storage(), first, (count,), (1,))
    memory[start : start + count].copy_(whole)
    made = torch.empty(0, dtype=like.dtype, device=like.device)
    return made.set_(memory.untyped_storage(), start // size, like.shape, like.stride())


@functools.cache
def _pattern(dtype: torch.dtype, number: float, size: int, place: torch.device) -> tuple[torch.Tensor, np.ndarray]:
    """The bytes of so many elements of a number, on a device and here."""
    found = _filled(size, dtype, number, place).view(torch.uint8)
    return found, found.cpu().numpy()


class TorchZones:
    """See base.Zones."""

    def __init__(self, tensor: torch.Tensor, elements: int) -> None:
        self._size = tensor.element_size()
        length = span(tensor.shape, tensor.stride()) * self._size
        self._count = -(-elements * self._size // _ALIGNMENT) * _ALIGNMENT // self._size
        zone = self._count * self._size
        memory = torch.empty(2 * zone + _ALIGNMENT + length, dtype=torch.uint8, device=tensor.device)
        start = zone + (tensor.data_ptr() - memory.data_ptr()) % _ALIGNMENT
        self.tensor = _at(memory, start, tensor)
        self._before, self._behind = memory[start - zone : start], memory[start + length : start + length + zone]
        self._written = np.empty(0, np.uint8)

    def fill(self, number: float) -> None:
        pattern, self._written = _pattern(self.tensor.dtype, number, self._count, self.tensor.device)
        self._before.copy_(pattern)
        self._behind.copy_(pattern)

    def damage(self) -> str:
        for words, zone in (("before its first", self._before), ("behind its last", self._behind)):
            found = zone.cpu().numpy()
            if not np.array_equal(found, self._written):
                places = np.flatnonzero(found != self._written) // self._size
                nearest = int(self._count - places[-1] if zone is self._before else places[0] + 1)
                return f"{nearest} element{'s' * (nearest > 1)} {words}"
        return ""


def zones(tensor: torch.Tensor, elements: int) -> TorchZones | None:
    """See base.Memory."""
    return TorchZones(tensor, elements) if _is_plain(tensor) else None


def refilled(tensor: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """See base.Memory."""
    with torch.no_grad():
        return tensor.detach().copy_(values)


def allocations(change: Callable[[torch.Tensor], torch.Tensor]) -> AbstractContextManager[Any]:
    """See base.Memory: what Python code allocates without writing to it is changed before that code has it."""

    def changed(func: Any, args: Any, kwargs: Any) -> Any:
        made = func(*args, **kwargs)
        return change(made) if func._schema.name in _EMPTY and isinstance(made, torch.Tensor) else made

    return KernelsBy(changed)


@contextmanager
def unwritten(place: torch.device, like: Sequence[np.ndarray], number: float) -> Iterator[bool]:
    """See base.Memory."""
    if place.type != "cpu":
        yield all(_filled_freed(place, to_tensor(array.reshape(-1)[:1]).dtype, array.size, number) for array in like)
        return
    byte = NEGATIVE if math.isnan(number) else POSITIVE
    with filled_allocations(byte):
        yield all(int(torch.empty(array.nbytes, dtype=torch.uint8)[-1]) == byte for array in like)


def _filled_freed(place: torch.device, dtype: torch.dtype, size: int, number: float) -> bool:
    """Free memory that is full of the number: does the allocator give it back?"""
    blocks = [_filled(size, dtype, number, place) for _ in range(_BLOCKS if size * dtype.itemsize <= _LARGE else 1)]
    wanted = blocks[0][-1:].view(torch.uint8).cpu()
    del blocks
    # What is freed again has the same numbers.
    found = torch.empty(size, dtype=dtype, device=place)
    return bool(torch.equal(found[-1:].view(torch.uint8).cpu(), wanted))


@contextmanager
def side_stream(place: torch.device, busy: int) -> Iterator[Callable[[], bool]]:
    """See base.Memory."""
    module: Any = torch.get_device_module(place.type)
    stream, current = module.Stream(place), module.current_stream(place)
    # What is on the wrong stream comes later than this, and is not there yet when the side stream is read.
    work = torch.ones(_BUSY, _BUSY, device=place)
    stream.wait_stream(current)
    for _ in range(3 * busy):
        work = work @ work * (1 / _BUSY)
    done = module.Event()
    done.record(current)
    with module.stream(stream):
        yield lambda: not done.query()
    current.wait_stream(stream)


def has_streams(place: torch.device) -> bool:
    """See base.Memory."""
    if place.type == "cpu":
        return False
    with suppress(AttributeError, RuntimeError, NotImplementedError, AssertionError):
        module: Any = torch.get_device_module(place.type)
        return module.Stream(place) is not None and callable(module.stream)
    return False


def at_page_end(tensor: torch.Tensor) -> torch.Tensor | None:
    """See base.Memory."""
    if not _is_plain(tensor) or tensor.device.type != "cpu" or not hasattr(mmap, "PROT_READ"):
        return None
    length = span(tensor.shape, tensor.stride()) * tensor.element_size()
    size = -(-length // mmap.PAGESIZE) * mmap.PAGESIZE
    pages = mmap.mmap(-1, size + mmap.PAGESIZE)
    buffer = (ctypes.c_uint8 * size).from_buffer(pages)
    libc = ctypes.CDLL(None, use_errno=True)
    behind = ctypes.c_void_p(ctypes.addressof(buffer) + size)
    if libc.mprotect(behind, ctypes.c_size_t(mmap.PAGESIZE), _NO_ACCESS):
        return None
    # The pages live as long as memory that is made of their buffer.
    memory = torch.frombuffer(buffer, dtype=torch.uint8)
    return _at(memory, size - -(-length // _ALIGNMENT) * _ALIGNMENT, tensor)
