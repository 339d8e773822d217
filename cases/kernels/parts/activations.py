"""Activations: GELU, SiLU, softplus, SwiGLU, sigmoid, tanh, ReLU and their like: tasks and healthy kernels."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from cases.kernels.entry import Task
from cases.kernels.making import normal
from cases.kernels.rounding import once

Tensor = torch.Tensor


def one_tensor(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    return [normal(g, dtype, 2000, scale=4.0)]


def far_out(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    return [
        torch.cat([normal(g, dtype, 1000, scale=3.0), torch.linspace(-60, 60, 1000, dtype=torch.float64).to(dtype)])
    ]


def tanh_by_exp(x: Tensor) -> Tensor:
    e = torch.expm1(-2 * x.abs())
    return -torch.sign(x) * e / (e + 2)


def gelu_tanh(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


GELU = Task(
    "GELU",
    "activations",
    once(lambda x: 0.5 * x * torch.erfc(-x * math.sqrt(0.5))),
    F.gelu,
    one_tensor,
    "Functional.gelu",
    backward=True,
)

TANH_GELU = Task(
    "GELU by tanh",
    "activations",
    lambda x, approximate: once(gelu_tanh)(x),
    lambda x, approximate: F.gelu(x, approximate=approximate),
    lambda dtype, g: [normal(g, dtype, 2000, scale=1.5), "tanh"],
    "Functional.gelu",
    backward=True,
)

SILU = Task(
    "SiLU", "activations", once(lambda x: x / (1 + torch.exp(-x))), F.silu, one_tensor, "Functional.silu", backward=True
)

SOFTPLUS = Task(
    "softplus",
    "activations",
    once(lambda x: x.clamp_min(0) + torch.log1p(torch.exp(-x.abs()))),
    F.softplus,
    far_out,
    "Functional.softplus",
)

LOGSIGMOID = Task(
    "log-sigmoid",
    "activations",
    once(lambda x: x.clamp_max(0) - torch.log1p(torch.exp(-x.abs()))),
    F.logsigmoid,
    far_out,
    "Functional.logsigmoid",
)

TANH = Task("tanh", "activations", once(tanh_by_exp), torch.tanh, far_out, "Torch.tanh")


def swiglu(gate: Tensor, x: Tensor) -> Tensor:
    return F.silu(gate) * x


SWIGLU = Task(
    "SwiGLU",
    "activations",
    once(swiglu),
    swiglu,
    lambda dtype, g: [normal(g, dtype, 20, 64, scale=2.0), normal(g, dtype, 20, 64, scale=2.0)],
    backward=True,
)

RELU = Task("ReLU", "activations", once(F.relu), F.relu, one_tensor, "Functional.relu", backward=True)
