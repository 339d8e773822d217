"""Activations: GELU, SiLU, softplus, SwiGLU, sigmoid, tanh, ReLU and their like: closed entries."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from benchmarks.kernels.entry import ACCELERATOR, F32, NARROW, Entry
from benchmarks.kernels.making import normal
from benchmarks.kernels.parts.activations import GELU, LOGSIGMOID, RELU, SILU, SOFTPLUS, SWIGLU, TANH, TANH_GELU
from benchmarks.kernels.rounding import once, with_gradient

ENTRIES: tuple[Entry, ...] = (
    GELU.healthy("by erfc"),
    GELU.fault(
        "erf without the root", "takes erf(x) for erf(x / sqrt 2)", once(lambda x: 0.5 * x * (1 + torch.erf(x)))
    ),
    TANH_GELU.fault(
        "constant of 0.0447",
        "takes 0.0447 for 0.044715",
        lambda x, a: once(lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.0447 * x**3))))(x),
        dtypes=(F32,),
    ),
    TANH_GELU.fault(
        "constant of 0.447",
        "the cubic term is ten times as large",
        lambda x, a: once(lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.44715 * x**3))))(x),
    ),
    SILU.healthy(
        "by half of tanh",
        once(lambda x: x * (0.5 + 0.5 * torch.tanh(0.5 * x))),
        dtypes=NARROW,
        backward=False,
        inputs=lambda dtype, g: [normal(g, dtype, 2000, scale=1.0)],
    ),
    SILU.wrong_gradient(
        "gradient without its second term",
        "the gradient is the sigmoid",
        with_gradient(F.silu, lambda g, x: g * torch.sigmoid(x)),
    ),
    SILU.wrong_gradient(
        "gradient with x + 1",
        "the gradient has 1 + x for 1 + x (1 - s)",
        with_gradient(F.silu, lambda g, x: g * torch.sigmoid(x) * (1 + x)),
    ),
    SOFTPLUS.fault(
        "log(1 + exp)", "loses what is small beside 1, and overflows", once(lambda x: torch.log(1 + torch.exp(x)))
    ),
    SOFTPLUS.fault("zero below -15", "is zero below -15", once(lambda x: torch.where(x < -15, 0.0, F.softplus(x)))),
    LOGSIGMOID.healthy("log1p"),
    LOGSIGMOID.fault(
        "log of the sigmoid", "takes the logarithm of a rounded sigmoid", once(lambda x: torch.log(torch.sigmoid(x)))
    ),
    TANH.fault(
        "by exp near 0",
        "1 - 2 / (exp(2x) + 1) loses tanh of small x",
        once(lambda x: 1 - 2 / (torch.exp(2 * x) + 1)),
        inputs=lambda dtype, g: [normal(g, dtype, 2000, scale=1e-4)],
    ),
    TANH.fault("overflow", "exp(2x) overflows to NaN", once(lambda x: (torch.exp(2 * x) - 1) / (torch.exp(2 * x) + 1))),
    SWIGLU.healthy("fused"),
    SWIGLU.healthy("SiLU rounded first", lambda gate, x: once(F.silu)(gate) * x, dtypes=NARROW, devices=ACCELERATOR),
    RELU.wrong_gradient("gradient everywhere", "the gradient ignores the sign", with_gradient(F.relu, lambda g, x: g)),
)
