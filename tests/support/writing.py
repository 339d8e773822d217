"""Writes dumps for tests, as msprobe would, from calls made here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch


def described(value: Any) -> Any:
    """A value as msprobe encodes it."""
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return [described(item) for item in value]
    if isinstance(value, torch.dtype):
        return {"type": "torch.dtype", "value": str(value)}
    if isinstance(value, slice):
        return {"type": "slice", "value": [value.start, value.stop, value.step]}
    return None if value is None else {"type": type(value).__name__, "value": value}


def _tensor(tensor: torch.Tensor) -> dict[str, Any]:
    row: dict[str, Any] = {"type": "torch.Tensor", "dtype": str(tensor.dtype), "shape": list(tensor.shape)}
    row |= {"Max": None, "Min": None, "Mean": None, "Norm": None, "requires_grad": tensor.is_floating_point()}
    if not tensor.is_contiguous():
        row["stride"] = list(tensor.stride())
    if not tensor.numel():
        return row
    if tensor.dtype is torch.bool:
        return row | {"Max": bool(tensor.any()), "Min": bool(tensor.all())}
    wide = tensor.detach().abs().double() if tensor.is_complex() else tensor.detach().double()
    row |= {"Max": wide.max().item(), "Min": wide.min().item(), "Mean": wide.mean().item()}
    return row | {"Norm": None if tensor.is_complex() else wide.norm().item()}


def entries(name: str, function: Any, *args: Any, backward: bool = False, **kwargs: Any) -> dict[str, dict[str, Any]]:
    """The entries of one call: `name` is "Functional.linear.0"."""
    outputs = function(*args, **kwargs)
    listed = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    found = {
        f"{name}.forward": {
            "input_args": [described(value) for value in args],
            "input_kwargs": {key: described(value) for key, value in kwargs.items()},
            "output": [described(value) for value in listed],
        }
    }
    if backward:
        generator = torch.Generator().manual_seed(0)
        gradients = [torch.randn(value.shape, generator=generator).to(value.dtype) for value in listed]
        found[f"{name}.backward"] = {"input": [described(value) for value in gradients], "output": []}
    return found


def write_dump(folder: Path, data: Mapping[str, Any], **head: Any) -> Path:
    """A dump.json in a folder."""
    top = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None, **head, "data": data}
    path = folder / "dump.json"
    path.write_text(json.dumps(top, indent=1), encoding="utf-8")
    return path
