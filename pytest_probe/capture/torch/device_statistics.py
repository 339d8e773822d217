"""Statistics of tensors that lie on a device: counted there when they are seen, and filled in when they have come."""

from __future__ import annotations

import logging
import math
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeAlias

import msgspec
import numpy as np
import torch
from msgspec import UNSET

from pytest_probe.capture.frequent_values import Layout, Places, fill_from_samples, places
from pytest_probe.capture.snapshot import Seen
from pytest_probe.capture.statistics import fill_from_row
from pytest_probe.capture.torch.device_rows import COLUMNS, SCALE, Rows, on_device, pinned
from pytest_probe.capture.torch.statistics import UNSIGNED, decoded
from pytest_probe.numerics.scaled import block_statistics

log = logging.getLogger("pytest_probe")
_TRITONS = {"cuda"}  # devices for which torch brings Triton; ROCm's have this name too
_EXTENTS = 3  # extents of a memory with gaps that a kernel walks
_TOGETHER = 64  # tensors that are counted in one launch
_PLAIN = frozenset((torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.bool))
_DENSE, _NOWHERE = (1, 1, 1, 1, 1), (0, 1, 1, 0, 0, 0)
# Whose others_wrote() is called when the program starts a kernel of its own.
_listeners: weakref.WeakSet[Any] = weakref.WeakSet()
# The compiled kernels, or the reason for their absence.
_compiled: dict[Any, Any] = {}
_failures: set[str] = set()


class _Waiting(msgspec.Struct, gc=False):
    """What a row is of: a tensor of so many elements, whether its extremes are the bits of integers, and where its
    sample lies; or the numbers of so many blocks."""

    seen: Seen
    count: int
    integers: bool = False
    where: Places | None = None
    blocks: bool = False


# A tensor to be counted: its numbers, the extents and strides by which a kernel walks them, and the kind of kernel: for
# a dtype, and for memory without gaps or with such.
_Counted: TypeAlias = tuple[_Waiting, torch.Tensor, tuple[int, ...], tuple[torch.dtype, bool]]


class _Lane(msgspec.Struct):
    """What the kernels that follow one another on a stream share: for each tensor of a launch rows of its parts and a
    counter."""

    scratch: torch.Tensor
    counters: torch.Tensor
    tables: dict[torch.dtype, torch.Tensor]


class _Gathered(threading.local):
    """The tensors that this thread counts together; None where it counts each at once."""

    tensors: list[_Counted] | None = None


class DeviceStatistics:
    """Of the tensors of one device. Gradients are off. sees_others: listener.others_wrote() is called before a kernel
    of the program's own runs."""

    def __init__(self, device: torch.device, listener: Any = None) -> None:
        self._rows = Rows(device, _fill_all)
        self._device = device
        self._kernels = _kernels() if device.type in _TRITONS else None
        self._lanes: dict[int, _Lane] = {}
        self._gathered = _Gathered()
        self.sees_others = listener is not None and self._kernels is not None and tell_of_other_kernels(listener)
        self.settle, self.waits = self._rows.settle, self._rows.waits

    def count(self, tensor: torch.Tensor, seen: Seen, layout: Layout, where: Places | None) -> None:
        """Begin to count a tensor, as it is now."""
        try:
            one = self._counted(tensor, seen, layout, where)
            if self._gathered.tensors is None:
                self._write([one])
            else:
                self._gathered.tensors.append(one)
        except Exception as error:
            seen.failed = f"{type(error).__name__}: {error}"

    def _counted(self, tensor: torch.Tensor, seen: Seen, layout: Layout, where: Places | None) -> _Counted:
        numbers = _countable(tensor)
        walk, dense = _DENSE, True
        if numbers is tensor and not isinstance(layout, int):
            dense = len(layout) > _EXTENTS
            if not dense:
                (s0, e0), (s1, e1), (s2, _) = (*layout, (0, 1), (0, 1))[:3]
                walk = e0, s0, e1, s1, s2
            elif self._kernels is not None:
                numbers = numbers.contiguous()
                where = where and places(numbers.shape, numbers.numel(), False)
        waiting = _Waiting(seen, numbers.numel(), not numbers.is_floating_point(), where)
        return waiting, numbers, walk, (numbers.dtype, dense)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Tensors that are counted in here are counted at its end, those of one dtype in one launch; they must not
        be written to meanwhile."""
        if self._gathered.tensors is not None or self._kernels is None:
            yield
            return
        self._gathered.tensors = []
        try:
            yield
        finally:
            gathered, self._gathered.tensors = self._gathered.tensors, None
            try:
                for first in range(0, len(gathered), _TOGETHER):
                    self._write(gathered[first : first + _TOGETHER])
            except Exception as error:
                for waiting, *_ in gathered:
                    waiting.seen.failed = f"{type(error).__name__}: {error}"

    def put_blocks(self, seen: Seen, numbers: torch.Tensor, count: int) -> None:
        """Begin to copy what was counted of a tensor's blocks."""
        with self._rows.lock:
            waiting = _Waiting(seen, count, blocks=True)
            rows, row = self._rows.take(torch.accelerator.current_stream(self._device.index), [waiting])
            rows[row, : len(numbers)].copy_(numbers)

    def _write(self, tensors: Sequence[_Counted]) -> None:
        stream = torch.accelerator.current_stream(self._device.index)
        if recorded_by_graph(self._device):
            raise RuntimeError("a graph records this call, and runs it later")
        with self._rows.lock, on_device(self._device):
            rows, first = self._rows.take(stream, [waiting for waiting, *_ in tensors])
            if self._kernels is not None:
                try:
                    self._launch(self._kernels, stream, tensors, rows, first)
                    return
                except Exception as error:
                    self._kernels = None
                    _say_failed(error)
            for row, (waiting, numbers, *_) in enumerate(tensors, first):
                _write_by_operators(waiting, numbers, rows[row])

    def _launch(self, kernels: Any, stream: Any, tensors: Sequence[_Counted], rows: torch.Tensor, first: int) -> None:
        lane, address, width = self._lane(stream), rows.data_ptr(), rows.stride(0) * rows.itemsize
        kinds: dict[tuple[torch.dtype, bool], list[tuple[int, ...]]] = {}
        for row, (waiting, numbers, walk, kind) in enumerate(tensors, first):
            if kind[0] not in kernels.DTYPES:
                _write_by_operators(waiting, numbers, rows[row])
                continue
            where = waiting.where
            sampled = _NOWHERE if where is None else (*where.shape, *where.strides)
            arguments = (numbers.data_ptr(), waiting.count, *walk, *sampled, address + row * width)
            kinds.setdefault(kind, []).append(arguments)
        for kind, tensors_arguments in kinds.items():
            args = (_table(lane, kind[0], self._device), lane.scratch.data_ptr(), lane.counters.data_ptr())
            parts = kernels.parts_of(max([size for _, size, *_ in tensors_arguments]))
            if len(tensors_arguments) == 1:
                self._run(kernels.pytest_probe_count, kind, (parts, 1, 1), tensors_arguments[0] + args)
            else:
                there = pinned(torch.tensor(tensors_arguments, device="cpu")).to(self._device, non_blocking=True)
                grid = (parts, len(tensors_arguments), 1)
                self._run(kernels.pytest_probe_count_all, kind, grid, (there.data_ptr(), *args))

    def _run(
        self, kernel: Any, kind: tuple[torch.dtype, bool], grid: tuple[int, int, int], args: Sequence[int]
    ) -> None:
        key = (kernel.__name__, self._device, kind)
        start = _compiled.get(key)
        if start is None:
            constants = self._kernels.constants(*kind)  # type: ignore[union-attr]
            compiled = kernel[grid](*args, **constants)
            _compiled[key] = _starting(compiled, self._kernels, self._device, tuple(constants.values()))
        else:
            start(grid, args)

    def _lane(self, stream: Any) -> _Lane:
        lane = self._lanes.get(stream.stream_id)
        if lane is None:
            size = _TOGETHER * self._kernels.MOST_PARTS * COLUMNS  # type: ignore[union-attr]
            scratch = torch.empty(size, dtype=torch.float64, device=self._device)
            counters = torch.zeros(_TOGETHER, dtype=torch.int32, device=self._device)
            lane = self._lanes[stream.stream_id] = _Lane(scratch, counters, {})
        return lane


def _starting(compiled: Any, kernels: Any, device: torch.device, values: tuple[Any, ...]) -> Any:
    """What starts a compiled kernel on the current stream, given a grid and arguments. Triton's own way takes several
    times as long to find the kernel, and then calls the hooks that other kernels need."""
    try:
        launch, function, packed = compiled.run, compiled.function, compiled.packed_metadata
        driver = kernels.triton.runtime.driver.active
        index = driver.get_current_device() if device.index is None else device.index
        stream_of = driver.get_current_stream
    except AttributeError:
        return lambda grid, args: compiled[grid](*args, *values)

    def start(grid: tuple[int, int, int], args: Sequence[int]) -> None:
        launch(*grid, stream_of(index), function, packed, None, None, None, *args, *values)

    return start


def recorded_by_graph(device: torch.device) -> bool:
    """Does a graph record what this device is asked for, and run it later?"""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _kernels() -> ModuleType | None:
    """The kernels of Triton's; None where it is missing, or does not work."""
    if _failures:
        return None
    try:
        from pytest_probe.capture.torch import device_kernel
    except Exception as error:
        _say_failed(error)
        return None
    return device_kernel


def tell_of_other_kernels(listener: Any) -> bool:
    """Call listener.others_wrote() when the program starts a kernel that it wrote in Triton's language: it may write
    to tensors, and torch's version counters do not see that. False where nobody can tell."""
    kernels = _kernels()
    if kernels is None:
        return False
    if not _listeners:
        try:
            kernels.triton.knobs.runtime.launch_enter_hook.add(_started)
        except AttributeError:  # before Triton 3.4
            return False
    _listeners.add(listener)
    return True


def _started(launch: Any) -> None:
    if not launch.get()["name"].startswith("pytest_probe_count"):
        for each in list(_listeners):
            each.others_wrote()


def _say_failed(error: Exception) -> None:
    if not _failures:
        _failures.add(str(error))
        log.warning(
            "pytest-probe: statistics on this device take several times as long without Triton (%s: %s)",
            type(error).__name__,
            str(error).partition("\n")[0],
        )


def _countable(tensor: torch.Tensor) -> torch.Tensor:
    """The numbers of a tensor, as kernels and operators know them: the tensor itself as a rule."""
    if tensor.dtype in _PLAIN and not tensor.is_neg():
        return tensor
    numbers = decoded(tensor)
    if numbers.is_complex():
        numbers = numbers.abs()
    if numbers.dtype is torch.uint64:
        numbers = numbers.to(torch.float64)
    return numbers.resolve_neg()


def _table(lane: _Lane, dtype: torch.dtype, device: torch.device) -> int:
    """The address of the numbers of all codes of a dtype of one byte, 0 for others."""
    if dtype.itemsize > 1 or not dtype.is_floating_point:
        return 0
    table = lane.tables.get(dtype)
    if table is None:
        table = lane.tables[dtype] = torch.arange(256, dtype=torch.uint8, device=device).view(dtype).float()
    return table.data_ptr()


def _write_by_operators(waiting: _Waiting, numbers: torch.Tensor, row: torch.Tensor) -> None:
    """A row by torch's operators, whose extremes are not those of the finite elements alone."""
    if waiting.where is not None:
        sample = numbers.as_strided(waiting.where.shape, waiting.where.strides)
        row[COLUMNS : COLUMNS + sample.numel()].view(sample.shape).copy_(sample)
    try:
        _write_numbers(numbers, row)
    except RuntimeError:  # the device has no such kernel for this dtype
        waiting.integers = False
        _write_numbers(numbers.to(row.dtype), row)


def _write_numbers(numbers: torch.Tensor, row: torch.Tensor) -> None:
    if numbers.dtype is torch.bool:
        row[2].copy_(numbers.count_nonzero())
        return
    if numbers.dtype.itemsize == 1 and numbers.is_floating_point():
        numbers = numbers.float()
    if numbers.dtype in UNSIGNED:
        numbers = numbers.to(torch.int64)
    low, high = torch.aminmax(numbers)
    whole = not numbers.is_floating_point()
    extremes = row.view(torch.int64) if whole and row.dtype is torch.float64 else row
    extremes[0].copy_(high)
    extremes[1].copy_(low)
    row[2].copy_(numbers.sum(dtype=row.dtype))
    wide = numbers.to(row.dtype) if whole else numbers
    row[3].copy_(torch.linalg.vector_norm(wide, dtype=row.dtype).square())
    row[7].fill_(math.inf)
    if whole:
        row[4:7].zero_()
    else:
        for column, found in ((4, numbers != numbers), (5, numbers == math.inf), (6, numbers == -math.inf)):
            row[column].copy_(found.sum())


def _fill_all(rows: np.ndarray, waiting: Sequence[_Waiting]) -> None:
    """Fill in what the rows say."""
    numbers = rows[:, :COLUMNS].tolist()
    whole = rows[:, :2].view(np.int64).tolist() if rows.dtype == np.float64 else numbers
    sampled: list[tuple[np.ndarray, Places, Seen]] = []
    for index, (one, row) in enumerate(zip(waiting, numbers, strict=True)):
        if one.seen.failed is not UNSET:
            continue
        if one.blocks:
            one.seen.blocks = block_statistics(row[:7], one.count)
            continue
        fill_from_row(one.seen, one.count, [*(whole[index] if one.integers else row)[:2], *row[2:]], SCALE)
        if one.where is not None:
            sampled.append((rows[index, COLUMNS : COLUMNS + math.prod(one.where.shape)], one.where, one.seen))
    if sampled:
        values, places, seen = zip(*sampled, strict=True)
        fill_from_samples(np.concatenate(values), places, seen)
