"""Paddle, as the contract of captures asks for it."""

from __future__ import annotations

from functools import partial
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import nn
from paddle.distributed.fleet.utils import recompute
from paddle.nn.functional import relu

from tests.support import capturing

__all__ = ["relu"]
FRAMEWORK, P, Module = "paddle", paddle, nn.Layer
recorded = partial(capturing.recorded, framework=FRAMEWORK)
CONV, NORM, RELU = "Conv2D", "BatchNorm2D", "InPlace"
CALLS = {"conv": "paddle._C_ops.conv2d", "relu": "paddle.nn.functional.relu_", "sum": "paddle.Tensor.__add__"}
TOP, TENSOR, FUNCTIONAL = "paddle", "paddle.Tensor", "paddle.nn.functional"
RECOMPUTING = [recompute]
COMPILER, compiled = "to_static", paddle.jit.to_static
tensor = paddle.to_tensor


def sgd(parameters: Any) -> Any:
    return paddle.optimizer.SGD(0.1, parameters=parameters)


def wanting(tensor: Any) -> Any:
    """A leaf that gets a gradient."""
    tensor.stop_gradient = False
    return tensor


class InPlace(nn.Layer):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return F.relu_(x)


class Res(nn.Layer):  # type: ignore[misc]
    """A layer that is used twice works in place, another gives its argument back."""

    def __init__(self) -> None:
        super().__init__()
        self.c1, self.b1 = nn.Conv2D(8, 8, 3, padding=1, bias_attr=False), nn.BatchNorm2D(8)
        self.c2, self.b2 = nn.Conv2D(8, 8, 3, padding=1, bias_attr=False), nn.BatchNorm2D(8)
        self.sc, self.relu = nn.Identity(), InPlace()

    def forward(self, x: Any) -> Any:
        out = self.b2(self.c2(self.relu(self.b1(self.c1(x)))))
        return self.relu(out + self.sc(x))


class Net(nn.Layer):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        paddle.seed(0)
        self.stem, self.r1, self.fc = nn.Conv2D(3, 8, 3, padding=1), Res(), nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        return self.fc(F.silu(self.r1(self.stem(x))).mean([2, 3]))
