"""PaddlePaddle: what a call returned, output by output."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import paddle

from pytest_probe.frameworks.paddle.arrays import Tensor, name_of
from pytest_probe.frameworks.python.results import Results
from pytest_probe.model.run import Device, Layout


def _layouts(device: Device | None) -> Callable[[Any], Layout]:
    place = str(paddle.CPUPlace() if device is None else device.put(paddle.empty([0])).place)
    return partial(_layout, place)


def _layout(place: str, tensor: Tensor) -> Layout:
    found = str(tensor.place)
    return Layout(name_of(tensor.dtype), found, found == place, tuple(tensor.strides))


RESULTS = Results(paddle.Tensor, paddle.Size, (paddle.dtype,), _layouts)
