"""PaddlePaddle: what a call returned, output by output."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import paddle

from pytest_probe.frameworks.paddle.arrays import Tensor, name_of
from pytest_probe.frameworks.python.results import Results
from pytest_probe.model.run import Device, Layout, Returned

RESULTS = Results(paddle.Tensor, paddle.Size, (paddle.dtype,))


def described(result: Any, outputs: Mapping[str, Any], device: Device | None) -> Returned:
    """The structure of a result, and the layouts of the tensors among its outputs."""
    place = str(paddle.CPUPlace() if device is None else device.put(paddle.empty([0])).place)
    return RESULTS.described(result, outputs, partial(_layout, place))


def _layout(place: str, tensor: Tensor) -> Layout:
    found = str(tensor.place)
    return Layout(name_of(tensor.dtype), found, found == place, tuple(tensor.strides))
