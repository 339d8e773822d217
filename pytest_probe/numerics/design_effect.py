"""How many elements of an output err by themselves, as runs show it: those of a row of attention move together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pytest_probe.numerics.dtypes import AnyArray


def design_effect(runs: Sequence[AnyArray], expected: AnyArray) -> float:
    """How many times as much the mean square of an output's errors scatters as that of independent elements would
    (Kish's design effect); 1.0 where fewer than two runs tell.

    runs are of one kind, each of the shape of expected. The square of each error is taken relative to its mean over the
    runs. Of independent elements the sum over a group scatters as the elements do; a slice along an axis, a line along
    it, and the whole output are groups.
    """
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        squares = np.abs(np.stack(list(runs)) - expected) ** 2 if len(runs) > 1 else np.empty(0)
        relative = squares / squares.mean(axis=0) - 1 if squares.size else squares
    relative = np.where(np.isfinite(relative), relative, 0.0)
    alone = float(np.sum(relative**2))
    if not alone:
        return 1.0
    return max(1.0, *(float(np.sum(total**2)) / alone for total in _group_sums(relative)))


def _group_sums(values: AnyArray) -> Iterator[AnyArray]:
    """Sums over all axes but the first, over each of them, and over all but each of them."""
    axes = tuple(range(1, values.ndim))
    yield values.sum(axis=axes)
    for axis in axes if len(axes) > 1 else ():
        yield values.sum(axis=axis)
        yield values.sum(axis=tuple(other for other in axes if other != axis))
