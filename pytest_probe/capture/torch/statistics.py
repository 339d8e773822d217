"""Statistics of torch's tensors: of large ones at once, of small ones together."""

from __future__ import annotations

import math
import threading
import zlib
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch

from pytest_probe.capture.snapshot import Seen
from pytest_probe.capture.statistics import ROOM, ROW, ROWS, fill_not_finite, fill_together
from pytest_probe.frameworks.torch.arrays import FLOAT4
from pytest_probe.references.scaled import float4_codes

# torch has next to no kernels for them.
UNSIGNED = frozenset((torch.uint16, torch.uint32, torch.uint64))
# Floating dtypes that NumPy has, and computes in; others become float32 first.
_NATIVE = frozenset((torch.float32, torch.float64))
# The number of each code of float4: torch casts none.
_NUMBERS = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32).tolist()
# The compiled kernel has one thread. One of torch's took 3 to 8 times as long for its three passes, so that of large
# tensors more threads than this may take less time.
SHARED = 1 << 22  # elements
_THREADS = 8


def faster_alone(count: int) -> bool:
    """Does the compiled kernel take less time for so many elements than torch does on its threads?"""
    return count < SHARED or torch.get_num_threads() <= _THREADS


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The values of a CPU tensor of any dtype, as NumPy can sum them up: complex ones by their absolute values, packed
    ones as pairs in a last dimension of twice the length."""
    tensor = decoded(tensor)
    if tensor.is_complex():
        tensor = tensor.abs()
    if tensor.dtype.is_floating_point and tensor.dtype not in _NATIVE:
        tensor = tensor.float()
    array: np.ndarray = tensor.detach().numpy()
    return array


def decoded(tensor: torch.Tensor) -> torch.Tensor:
    """A packed tensor's numbers in float32, twice as many along the last dimension; any other tensor itself."""
    if tensor.dtype is not FLOAT4:
        return tensor
    return torch.tensor(_NUMBERS, device=tensor.device)[float4_codes(tensor).long()]


class _Rooms(threading.local):
    def __init__(self) -> None:
        # Threads may have a default device of their own.
        self.float64 = torch.empty(ROOM, dtype=torch.float64, device="cpu")


_rooms = _Rooms()


def count_large(tensor: torch.Tensor, seen: Seen) -> None:
    """Fill in the statistics of a large CPU tensor; gradients are off."""
    flat = decoded(tensor.reshape(-1))
    if flat.dtype is torch.bool:
        seen.true = int(flat.count_nonzero())
        seen.max, seen.min = seen.true > 0, seen.true == flat.numel()
        return
    if flat.dtype in UNSIGNED:
        fill_together(to_numpy(flat), [flat.numel()], [seen])
        return
    if flat.is_complex():
        flat = flat.abs()
    elif flat.dtype.itemsize == 1 and flat.is_floating_point():
        flat = flat.float()
    low, high = (extreme.item() for extreme in torch.aminmax(flat))
    seen.max, seen.min = high, low
    rows = _rows(flat, max(high, -low))
    seen.mean = _total(flat, rows if low >= 0 or high <= 0 else ()) / flat.numel()
    seen.norm = _norm(flat, rows)
    if not math.isfinite(seen.norm):
        fill_not_finite(seen, to_numpy(flat))


def _rows(flat: torch.Tensor, top: float) -> Sequence[torch.Tensor]:
    """The elements, top at most, in rows that may be summed in float32, where neither they nor their squares overflow
    or vanish; none where that does not hold or is not faster. Where no terms cancel such a sum is right to about seven
    digits, and takes a third of the time."""
    narrow = flat.is_floating_point() and flat.dtype is not torch.float64
    if not narrow or flat.numel() < ROWS or not 1e-10 < top < 1e15:
        return ()
    whole = flat.numel() // ROW * ROW
    if whole == flat.numel():
        return (flat.view(-1, ROW),)
    return flat[:whole].view(-1, ROW), flat[whole:].view(1, -1)


def _total(flat: torch.Tensor, rows: Sequence[torch.Tensor]) -> float:
    """The sum in float64, but for rows."""
    if rows:
        return sum(part.sum(1, dtype=torch.float32).sum(dtype=torch.float64).item() for part in rows)
    # torch would make room for all of it in float64, each time new memory: twice the time.
    room, size = _rooms.float64, flat.numel()
    if size <= ROOM:
        return float(room[:size].copy_(flat).sum())
    parts = (flat[start : start + ROOM] for start in range(0, size, ROOM))
    return float(sum(room[: part.numel()].copy_(part).sum().item() for part in parts))


def _norm(flat: torch.Tensor, rows: Sequence[torch.Tensor]) -> float:
    """The 2-norm in float64, but for rows."""
    if rows:
        norms = [torch.linalg.vector_norm(part, dim=1, dtype=torch.float32) for part in rows]
        return math.hypot(*(torch.linalg.vector_norm(norm, dtype=torch.float64).item() for norm in norms))
    wide = flat if flat.is_floating_point() else flat.to(torch.float64)
    return float(torch.linalg.vector_norm(wide, dtype=torch.float64))


def crc(tensor: torch.Tensor) -> str:
    """CRC-32 of the elements in their order, as msprobe's md5: 8 hex digits."""
    ordered = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().view(-1)
    data: Any = ordered.view(torch.uint8).numpy()
    return f"{zlib.crc32(data):08x}"
