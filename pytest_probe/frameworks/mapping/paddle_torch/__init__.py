"""Paddle's APIs by torch's: how the names of both are spelled. Entries are in the YAML files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from pytest_probe.errors import Unsupported

RECORD, CALL = "paddle", "torch"
# Where functions stand that are methods too, or that have a name in two modules; and what operators are called.
SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "paddle.Tensor": ("paddle", "paddle.nn.functional", "paddle.linalg"),
    "paddle.tensor": ("paddle",),
    "paddle.linalg": ("paddle",),
    "paddle.nn.functional": ("paddle",),
    "paddle._C_ops": ("paddle", "paddle.nn.functional"),
    "torch.Tensor": ("torch", "torch.nn.functional", "torch.linalg"),
    "torch.nn.functional": ("torch",),
    "torch.special": ("torch",),
    "torch": ("torch.nn.functional", "torch.linalg"),
    **{
        f"torch.Tensor.__{prefix}{name}__": (f"torch.{function}",)
        for name, function in (("add", "add"), ("mul", "mul"), ("sub", "sub"), ("truediv", "div"))
        for prefix in ("", "i", *(("r",) if name in ("add", "mul") else ()))
    },
    **{f"torch.Tensor.__{name}__": (f"torch.{name}",) for name in "eq ne lt le gt ge matmul".split()},
}


def refused(argument: str, group: str = "") -> Unsupported:
    """No call of torch's is this one. group: what reports count it under, where that is not the argument's name."""
    words = "no counterpart for "
    return Unsupported(words + argument, words + (group or argument.partition("=")[0]))


def ints(value: Any) -> list[int]:
    """Sizes or dimensions: a number, a tensor, or a list of both."""
    if isinstance(value, torch.Tensor):
        return [int(each) for each in value.reshape(-1).tolist()]
    if isinstance(value, (list, tuple)):
        return [int(each) for each in value]
    return [int(value)]


def dims(value: Any, count: int) -> list[int]:
    """Dimensions, counted from the first."""
    return [dim % count if count else 0 for dim in ints(value)]


def number(value: Any) -> Any:
    """A Python number, where a tensor has it, or a text."""
    if isinstance(value, torch.Tensor):
        return value.item()
    return float(value) if isinstance(value, str) else value


def less_than_one(p: float) -> float:
    """1 - p, as Paddle's kernels have it: in float32."""
    return float(np.float32(1) - np.float32(p))
