"""PyTorch: sums over all rows that 16-bit kernels of torch's own CPU take row by row, also of a call that runs in
pieces, where each goes on from the sums that the one before left."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import numpy as np
import torch

from pytest_probe.frameworks.torch.cpu16.sequential import chain


class ThreadSums:
    """The sum of `count` rows as threads share them out: each adds up its own, every sum rounded."""

    def __init__(self, dtype: torch.dtype, count: int) -> None:
        self._dtype, self._share, self._seen = dtype, -(-count // min(torch.get_num_threads(), count)), 0
        self._sums: list[torch.Tensor] = []

    def add(self, rows: torch.Tensor) -> None:
        """The next rows, one in each place of the first dimension."""
        while len(rows):
            before = self._seen % self._share
            if not before:
                self._sums.append(torch.zeros_like(rows[0]))
            taken = rows[: self._share - before]
            self._sums[-1] = chain(self._dtype, taken.movedim(0, -1), self._sums[-1])
            self._seen, rows = self._seen + len(taken), rows[len(taken) :]

    def total(self) -> torch.Tensor:
        """Of all rows, not yet rounded."""
        return torch.stack(self._sums).sum(0)


class RowsInTurn:
    """Such sums of a call that runs in pieces of its `extent` places. Each piece but the last gives zeros, and that the
    sums of all, so that what the pieces give adds up to them."""

    def __init__(self, extent: int) -> None:
        self._extent, self._window, self._turn = extent, slice(0, 0), 0
        self._sums: list[ThreadSums] = []
        self._totals: list[torch.Tensor] = []

    def begin(self, window: slice) -> None:
        """Begin the next piece, which has these places."""
        self._window, self._turn = window, 0

    def add(self, dtype: torch.dtype, rows: torch.Tensor) -> torch.Tensor:
        """What a kernel gives that sums the rows of a piece; the kernels of each piece come in one order."""
        if self._turn == len(self._sums):
            self._sums.append(ThreadSums(dtype, len(rows) * self._extent // (self._window.stop - self._window.start)))
        sums = self._sums[self._turn]
        self._turn += 1
        sums.add(rows)
        if self._window.stop < self._extent:
            return torch.zeros_like(rows[0])
        self._totals.append(sums.total())
        return self._totals[-1]

    def has_given(self, array: np.ndarray) -> bool:
        """Is it one of these sums, with no step between?"""
        return any(np.array_equal(array, total.numpy()) for total in self._totals)


_IN_TURN: ContextVar[RowsInTurn | None] = ContextVar("rows in turn", default=None)


@contextlib.contextmanager
def rows_in_turn(extent: int) -> Iterator[RowsInTurn]:
    """The runs inside are pieces of one call, in their order."""
    found = RowsInTurn(extent)
    token = _IN_TURN.set(found)
    try:
        yield found
    finally:
        _IN_TURN.reset(token)


def row_sum(dtype: torch.dtype, rows: torch.Tensor) -> torch.Tensor:
    """The sum of rows, one in each place of the first dimension, and of those in pieces before them."""
    in_turn = _IN_TURN.get()
    if in_turn is not None:
        return in_turn.add(dtype, rows)
    sums = ThreadSums(dtype, len(rows))
    sums.add(rows)
    return sums.total()
