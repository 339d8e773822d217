"""PyTorch: what a call returned, output by output."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from pytest_probe.core.run import Device, Layout, Returned

# What a call takes, and results hold, as it is.
PLAIN = (bool, int, float, complex, str, type(None))
# What a result may hold besides, and is compared as text.
NAMES = (torch.dtype, torch.device, torch.layout, torch.memory_format, np.dtype, enum.Enum)


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
    """The parts of a list, tuple, dict or dataclass; None where it is none of them."""
    if isinstance(value, torch.Tensor):
        return None
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return dict(enumerate(value))
    if isinstance(value, Mapping):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def plain(value: Any) -> Any:
    """An output that is no tensor: numbers and text as they are, arrays of NumPy's and its numbers as arrays."""
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
        return np.array(value)
    return list(value) if isinstance(value, torch.Size) else str(value)


def described(result: Any, outputs: Mapping[str, Any], device: Device | None) -> Returned:
    """The structure of a result, and the layouts of the tensors among its outputs."""
    place = torch.device("cpu") if device is None else device.put(torch.empty(0)).device
    tensors = {name: value for name, value in outputs.items() if isinstance(value, torch.Tensor)}
    known = (torch.Tensor, np.ndarray, np.generic, torch.Size, *PLAIN, *NAMES)
    unknown = {name: type(value).__name__ for name, value in outputs.items() if not isinstance(value, known)}
    layouts = {name: _layout(value, place) for name, value in tensors.items()}
    return Returned(_structure(result), layouts, unknown)


def _layout(tensor: torch.Tensor, place: torch.device) -> Layout:
    strides = tensor.stride() if tensor.layout is torch.strided else ()
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Layout(dtype, str(tensor.device), tensor.device == place, strides)


def _structure(value: Any) -> str:
    inside = _inside(value)
    if isinstance(value, torch.Tensor):
        return "tensor"
    if inside is None:
        return type(value).__name__ if value is not None else "None"
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(_structure, value))}{',' * (len(value) == 1)})"
    return f"{{{', '.join(f'{key}: {_structure(item)}' for key, item in sorted(inside.items(), key=str))}}}"
