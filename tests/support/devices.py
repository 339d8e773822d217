"""A device that is one by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch


class Emulated:
    """A device that makes calls on the CPU, and something of its results."""

    def __init__(self, name: str, change: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor) -> None:
        self.name = name
        self.change = change

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.clone()

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return function(*args, **kwargs)

    def get(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.change(tensor) if tensor.is_floating_point() else tensor


class Replacing(Emulated):
    """A device with kernels of its own for some functions."""

    def __init__(self, name: str, kernels: Mapping[Any, Callable[..., Any]]) -> None:
        super().__init__(name)
        self.kernels = kernels

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return self.kernels.get(function, function)(*args, **kwargs)
