"""Activations: GELU, SiLU, softplus, SwiGLU, sigmoid, tanh, ReLU and their like: open entries."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from cases.kernels import defects
from cases.kernels.entry import ACCELERATOR, BF16, F16, F32, NARROW, Entry, Task
from cases.kernels.making import normal
from cases.kernels.parts.activations import (
    GELU,
    LOGSIGMOID,
    RELU,
    SILU,
    SOFTPLUS,
    SWIGLU,
    TANH,
    TANH_GELU,
    Tensor,
    far_out,
    gelu_tanh,
    one_tensor,
    swiglu,
)
from cases.kernels.rounding import after, once, stepwise, toward_zero, ulp_up, with_gradient


def gelu_gradient(g: Tensor, x: Tensor) -> Tensor:
    density = torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return g * (0.5 * torch.erfc(-x * math.sqrt(0.5)) + x * density)


def silu_gradient(g: Tensor, x: Tensor) -> Tensor:
    s = torch.sigmoid(x)
    return g * s * (1 + x * (1 - s))


SIGMOID = Task(
    "sigmoid", "activations", once(lambda x: 1 / (1 + torch.exp(-x))), torch.sigmoid, far_out, "Torch.sigmoid"
)


ENTRIES: tuple[Entry, ...] = (
    GELU.healthy("own backward", with_gradient(F.gelu, gelu_gradient)),
    GELU.fault("by tanh", "takes the tanh formula for erf", once(gelu_tanh)),
    GELU.fault("by sigmoid", "takes x sigmoid(1.702 x)", once(lambda x: x * torch.sigmoid(1.702 * x))),
    GELU.fault("tail flushed", "is zero below -3", once(lambda x: torch.where(x < -3, 0.0, F.gelu(x)))),
    GELU.wrong_gradient(
        "gradient without the density",
        "the gradient is the distribution alone",
        with_gradient(F.gelu, lambda g, x: g * 0.5 * torch.erfc(-x * math.sqrt(0.5))),
    ),
    GELU.fault("truncated", "cuts where it should round", once(F.gelu, toward_zero), dtypes=NARROW),
    GELU.fault("tail unwritten", "the last 16 elements are old", after(once(F.gelu), defects.tail(16, 0.25))),
    TANH_GELU.healthy("in float32", dtypes=NARROW),
    SILU.healthy("x / (1 + exp(-x))"),
    SILU.healthy("own backward", with_gradient(F.silu, silu_gradient)),
    SILU.fault("hard", "takes the piecewise linear sigmoid", once(F.hardswish)),
    SILU.fault(
        "sigmoid in 16 bit",
        "rounds the sigmoid to float8_e4m3",
        once(lambda x: x * stepwise(torch.float8_e4m3fn)(torch.sigmoid(x))),
    ),
    SILU.fault("one ulp up", "rounds everything one step too high", once(F.silu, ulp_up), dtypes=NARROW),
    SOFTPLUS.healthy("log1p", close=3e-9),
    SOFTPLUS.fault("threshold of 3", "is x from 3 on", once(lambda x: torch.where(x > 3, x, F.softplus(x)))),
    LOGSIGMOID.fault(
        "log of 16 bit",
        "takes the logarithm of the sigmoid in the tensor's dtype",
        lambda x: torch.log(torch.sigmoid(x)),
        dtypes=NARROW,
    ),
    TANH.healthy("by expm1"),
    TANH.healthy(
        "by exp, 16-bit tensors", once(lambda x: 1 - 2 / (torch.exp(2 * x) + 1)), dtypes=(BF16,), inputs=one_tensor
    ),
    TANH.fault(
        "rational",
        "is clamped x (27 + x^2) / (27 + 9 x^2)",
        once(lambda x: (x * (27 + x * x) / (27 + 9 * x * x)).clamp(-1, 1)),
    ),
    SIGMOID.healthy("1 / (1 + exp(-x))"),
    SIGMOID.fault(
        "1 - 1 / (1 + exp)", "loses small values", once(lambda x: 1 - 1 / (1 + torch.exp(x))), dtypes=(F32, BF16)
    ),
    SIGMOID.fault(
        "subnormal float16 flushed",
        "float16's subnormals are zero",
        after(SIGMOID.kernel, lambda x: torch.where(x < 6.1e-5, torch.zeros_like(x), x)),
        dtypes=(F16,),
    ),
    SWIGLU.healthy(
        "own backward", with_gradient(swiglu, lambda g, gate, x: (silu_gradient(g * x, gate), g * F.silu(gate)))
    ),
    SWIGLU.fault("gate and value swapped", "takes the SiLU of the value", once(lambda gate, x: F.silu(x) * gate)),
    SWIGLU.fault("GELU", "is GeGLU", once(lambda gate, x: F.gelu(gate) * x)),
    SWIGLU.fault("sigmoid", "is GLU", once(lambda gate, x: torch.sigmoid(gate) * x)),
    SWIGLU.wrong_gradient(
        "gradient of the sigmoid",
        "the gate's gradient lacks the gate's own factor",
        with_gradient(swiglu, lambda g, gate, x: (g * x * torch.sigmoid(gate), g * F.silu(gate))),
    ),
    RELU.healthy("the larger of x and 0", lambda x: torch.where(x > 0, x, torch.zeros_like(x))),
    RELU.fault("one ulp up", "gives the next number", once(F.relu, ulp_up)),
    RELU.fault("leaky", "passes 1 % of negative numbers", once(lambda x: F.leaky_relu(x, 0.01))),
    RELU.fault(
        "NaN to zero",
        "turns NaN into 0",
        once(lambda x: torch.where(x > 0, x, 0.0)),
        inputs=lambda dtype, g: [torch.cat([one_tensor(dtype, g)[0], torch.full((3,), torch.nan).to(dtype)])],
    ),
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
