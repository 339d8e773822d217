"""torch, as the contract of captures asks for it."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.functional import relu
from torch.utils.checkpoint import checkpoint

from tests.support import capturing

__all__ = ["relu"]
FRAMEWORK, P, Module = "pytorch", torch, nn.Module
recorded = partial(capturing.recorded, framework=FRAMEWORK)
CONV, NORM, RELU = "Conv2d", "BatchNorm2d", "ReLU"
CALLS = {"conv": "Functional.conv2d", "relu": "Functional.relu", "sum": "Tensor.__iadd__"}
TOP, TENSOR, FUNCTIONAL = "Torch", "Tensor", "Functional"
RECOMPUTING = [partial(checkpoint, use_reentrant=True), partial(checkpoint, use_reentrant=False)]
COMPILER, compiled = "torch.compile", partial(torch.compile, backend="eager")
tensor, sgd = torch.tensor, partial(torch.optim.SGD, lr=0.1)


def wanting(tensor: torch.Tensor) -> torch.Tensor:
    """A leaf that gets a gradient."""
    return tensor.requires_grad_()


class Res(nn.Module):
    """As in the network whose dumps by msprobe 26.2.0 the names are from: a module that is used twice works in place,
    another gives its argument back."""

    def __init__(self) -> None:
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(8, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
        self.c2, self.b2 = nn.Conv2d(8, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
        self.sc, self.relu = nn.Identity(), nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.b2(self.c2(self.relu(self.b1(self.c1(x)))))
        out += self.sc(x)
        return self.relu(out)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.r1, self.fc = nn.Conv2d(3, 8, 3, 1, 1), Res(), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(F.silu(self.r1(self.stem(x))).mean((2, 3)))
