"""PaddlePaddle: what a call returned, output by output."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import paddle

from pytest_probe.core.run import Device, Layout, Returned
from pytest_probe.frameworks.paddle.arrays import Tensor, name_of

# What a call takes, and results hold, as it is.
PLAIN = (bool, int, float, complex, str, type(None))
# What a result may hold besides, and is compared as text.
NAMES = (paddle.dtype, np.dtype, enum.Enum)


def flattened(result: Any) -> Iterator[tuple[str, Any]]:
    """Return values by name. A single output counts as a list of one; None is no output."""
    return _flatten(result, "output", top=True)


def _flatten(value: Any, name: str, top: bool = False) -> Iterator[tuple[str, Any]]:
    inside = _inside(value)
    if inside is not None:
        for key, item in inside.items():
            yield from _flatten(item, f"{name}.{key}")
    elif value is not None:
        yield (f"{name}.0" if top else name), value


def _inside(value: Any) -> Mapping[Any, Any] | None:
    """The parts of a list, tuple or dict; None where it is none of them."""
    if isinstance(value, (list, tuple)) and not isinstance(value, paddle.Size):
        return dict(enumerate(value))
    return value if isinstance(value, Mapping) else None


def plain(value: Any) -> Any:
    """An output that is no tensor: numbers and text as they are, arrays of NumPy's and its numbers as arrays."""
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
        return np.array(value)
    return list(value) if isinstance(value, paddle.Size) else str(value)


def described(result: Any, outputs: Mapping[str, Any], device: Device | None) -> Returned:
    """The structure of a result, and the layouts of the tensors among its outputs."""
    place = str(paddle.CPUPlace() if device is None else device.put(paddle.empty([0])).place)
    known = (paddle.Tensor, np.ndarray, np.generic, paddle.Size, *PLAIN, *NAMES)
    unknown = {name: type(value).__name__ for name, value in outputs.items() if not isinstance(value, known)}
    layouts = {name: _layout(value, place) for name, value in outputs.items() if isinstance(value, paddle.Tensor)}
    return Returned(_structure(result), layouts, unknown)


def _layout(tensor: Tensor, place: str) -> Layout:
    found = str(tensor.place)
    return Layout(name_of(tensor.dtype), found, found == place, tuple(tensor.strides))


def _structure(value: Any) -> str:
    inside = _inside(value)
    if isinstance(value, paddle.Tensor):
        return "tensor"
    if inside is None:
        return type(value).__name__ if value is not None else "None"
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(_structure, value))}{',' * (len(value) == 1)})"
    return f"{{{', '.join(f'{key}: {_structure(item)}' for key, item in sorted(inside.items(), key=str))}}}"
