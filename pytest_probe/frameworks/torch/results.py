"""PyTorch: what a call returned, output by output."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from pytest_probe.frameworks.python.results import Results
from pytest_probe.model.run import Device, Layout, Returned

RESULTS = Results(torch.Tensor, torch.Size, (torch.dtype, torch.device, torch.layout, torch.memory_format))


def described(result: Any, outputs: Mapping[str, Any], device: Device | None) -> Returned:
    """The structure of a result, and the layouts of the tensors among its outputs."""
    place = torch.device("cpu") if device is None else device.put(torch.empty(0)).device
    return RESULTS.described(result, outputs, partial(_layout, place))


def _layout(place: torch.device, tensor: torch.Tensor) -> Layout:
    strides = tensor.stride() if tensor.layout is torch.strided else ()
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Layout(dtype, str(tensor.device), tensor.device == place, strides)
