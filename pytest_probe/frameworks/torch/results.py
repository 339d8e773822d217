"""PyTorch: what a call returned, output by output."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from pytest_probe.frameworks.python.results import Results
from pytest_probe.model.run import Device, Layout


def _layouts(device: Device | None) -> Callable[[Any], Layout]:
    place = torch.device("cpu") if device is None else device.put(torch.empty(0)).device
    return partial(_layout, place)


def _layout(place: torch.device, tensor: torch.Tensor) -> Layout:
    strides = tensor.stride() if tensor.layout is torch.strided else ()
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Layout(dtype, str(tensor.device), tensor.device == place, strides)


RESULTS = Results(torch.Tensor, torch.Size, (torch.dtype, torch.device, torch.layout, torch.memory_format), _layouts)
