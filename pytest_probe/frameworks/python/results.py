"""What a call returned, output by output."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from msgspec import Struct

from pytest_probe.model.run import Device, Layout, Returned

# What a call takes, and results hold, as it is.
PLAIN = (bool, int, float, complex, str, type(None))


class Results(Struct, frozen=True):
    """How one framework's results are read: its type of tensors, that of shapes, and the types that a result may hold
    besides, which are compared as text. layouts gives what tells the layout of a tensor, of outputs on a device, None:
    on the CPU."""

    tensor: type
    size: type[Iterable[int]]
    names: tuple[type, ...]
    layouts: Callable[[Device | None], Callable[[Any], Layout]]

    def flattened(self, result: Any) -> Iterator[tuple[str, Any]]:
        """Return values by name. A single output counts as a list of one; None is no output."""
        return self._flatten(result, "output", top=True)

    def plain(self, value: Any) -> Any:
        """An output that is no tensor: numbers and text as they are, arrays of NumPy's and its numbers as arrays."""
        if isinstance(value, PLAIN):
            return value
        if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
            return np.array(value)
        return list(value) if isinstance(value, self.size) else str(value)

    def described(self, result: Any, outputs: Mapping[str, Any], device: Device | None) -> Returned:
        """The structure of a result, and the layouts of the tensors among its outputs."""
        layout = self.layouts(device)
        known = (self.tensor, np.ndarray, np.generic, self.size, *PLAIN, np.dtype, enum.Enum, *self.names)
        unknown = {name: type(value).__name__ for name, value in outputs.items() if not isinstance(value, known)}
        layouts = {name: layout(value) for name, value in outputs.items() if isinstance(value, self.tensor)}
        return Returned(self._structure(result), layouts, unknown)

    def _flatten(self, value: Any, name: str, top: bool = False) -> Iterator[tuple[str, Any]]:
        inside = self._inside(value)
        if inside is not None:
            for key, item in inside.items():
                yield from self._flatten(item, f"{name}.{key}")
        elif value is not None:
            yield (f"{name}.0" if top else name), value

    def _inside(self, value: Any) -> Mapping[Any, Any] | None:
        """The parts of a list, tuple, dict or dataclass; None where it is none of them."""
        if isinstance(value, self.tensor):
            return None
        if isinstance(value, (list, tuple)) and not isinstance(value, self.size):
            return dict(enumerate(value))
        if isinstance(value, Mapping):
            return value
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return None

    def _structure(self, value: Any) -> str:
        inside = self._inside(value)
        if isinstance(value, self.tensor):
            return "tensor"
        if inside is None:
            return type(value).__name__ if value is not None else "None"
        if isinstance(value, (list, tuple)):
            return f"({', '.join(map(self._structure, value))}{',' * (len(value) == 1)})"
        return f"{{{', '.join(f'{key}: {self._structure(item)}' for key, item in sorted(inside.items(), key=str))}}}"
