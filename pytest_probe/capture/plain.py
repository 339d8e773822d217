"""Snapshots of what every framework is given: Python's values, NumPy's scalars, and containers of them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pytest_probe.capture.snapshot import PlainEntry, Tree, json_number


class Snapshots:
    """Takes snapshots of arguments and results. leaves are the ways by type; a framework adds its own types.

    scalars: the values of numbers and of text are kept, not only their types.
    """

    def __init__(self, scalars: bool) -> None:
        self._taken = 0

        def plain(kind: str) -> Callable[[Any], Tree]:
            return (lambda value: PlainEntry(kind, value)) if scalars else (lambda value: {})

        self.leaves: dict[type, Callable[[Any], Tree]] = {
            type(None): lambda value: None,
            **{kind: plain(kind.__name__) for kind in (bool, int, str)},
            float: (lambda value: PlainEntry("float", json_number(value))) if scalars else plain("float"),
            complex: lambda value: PlainEntry("complex", [json_number(value.real), json_number(value.imag)]),
            slice: _slice,
            range: lambda value: PlainEntry("range", [value.start, value.stop, value.step]),
            type(...): lambda value: PlainEntry("ellipsis", "..."),
            tuple: lambda value: tuple([self.take(item) for item in value]),
            list: lambda value: [self.take(item) for item in value],
            # An empty object is what was left out.
            dict: lambda value: {str(key): self.take(item) for key, item in value.items()} or PlainEntry("dict", {}),
        }

    # What Python's number types stand for where a dtype is asked for.
    pythons: Mapping[type, Any] = {}

    def take(self, value: Any) -> Tree:
        """The snapshot of an argument or a result."""
        return self.leaves.get(type(value), self.other)(value)

    def other(self, value: Any) -> Tree:
        """The snapshot of a value whose type has no way of its own."""
        if isinstance(value, np.generic):
            return self._numpy(value)
        if isinstance(value, np.ndarray):
            return self.array(np.asarray(value))
        for plain in (int, float):
            if isinstance(value, plain):
                return self.leaves[plain](plain(value))  # JSON shows subclasses as text
        for kind in (tuple, list, dict, str):
            if isinstance(value, kind):
                return self.leaves[kind](value)
        if isinstance(value, type) and value in self.pythons:
            return self.take(self.pythons[value])
        if hasattr(type(value), "__index__"):
            return self.leaves[int](operator.index(value))
        return {"type": f"{type(value).__module__}.{type(value).__qualname__}"}

    def taken(self) -> int:
        """Bytes of data that were copied since the last time this was asked, and wait to be saved."""
        taken, self._taken = self._taken, 0
        return taken

    def waits(self) -> bool:
        """Would `settle` wait for a device?"""
        raise NotImplementedError

    def settle(self) -> None:
        """Fill in all statistics that were put off; waits once for other devices."""
        raise NotImplementedError

    def forget(self) -> None:
        """What was written since is not known, as between stop and start."""
        raise NotImplementedError

    def distrust(self, value: Any) -> None:
        """The memory of these tensors may be written to without the framework counting it."""
        raise NotImplementedError

    def save(self, data: Any, path: Path) -> None:
        """Write one tensor's data. Raises OSError."""
        raise NotImplementedError

    def array(self, array: np.ndarray) -> Tree:
        """A NumPy array, whose elements count in their order."""
        raise NotImplementedError

    def _numpy(self, value: np.generic) -> Tree:
        plain = value.item()
        if isinstance(plain, np.generic):  # what no Python number holds
            return {"type": f"numpy.{type(value).__qualname__}"}
        tree = self.take(plain)
        return PlainEntry(type(value).__name__, tree.value) if isinstance(tree, PlainEntry) else tree


def _slice(value: slice) -> PlainEntry:
    parts = (value.start, value.stop, value.step)
    # A tensor as a bound is an index; reading it waits for the device, as the call itself does.
    return PlainEntry("slice", [None if part is None else int(part) for part in parts])
