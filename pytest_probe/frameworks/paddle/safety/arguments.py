"""Arguments of a call, as checks ask for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from pytest_probe.model.arguments import BoundCall, Leaf


def array_at(bound: BoundCall, name: str) -> np.ndarray | None:
    """The tensor that an argument is, None where it is none."""
    value = bound.argument(name)
    return value.array if isinstance(value, Leaf) else None


def arrays_at(bound: BoundCall, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Those of these arguments that are tensors, by name."""
    for name in names:
        array = array_at(bound, name)
        if array is not None:
            yield name, array


def value_at(bound: BoundCall, name: str, place: int) -> Any:
    """An argument of a call without a signature here: by its keyword, or by its place."""
    return bound.given.get(name, bound.given.get(f"input.{place}"))


def are_sizes(value: Any) -> bool:
    """Is it a list of numbers, none below 0?"""
    return isinstance(value, (list, tuple)) and all(isinstance(size, int) and size >= 0 for size in value)


def shape_of(value: object) -> tuple[int, ...] | None:
    """Of a tensor, None for anything else."""
    return value.array.shape if isinstance(value, Leaf) else None


def listed(bound: BoundCall, name: str) -> list[Any] | tuple[Any, ...] | None:
    """The list that an argument is, None where it is none."""
    value = bound.argument(name)
    return value if isinstance(value, (list, tuple)) else None
