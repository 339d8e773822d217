"""Activations: piecewise ones, gates, slopes that are learned: closed entries."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from cases.kernels.entry import ACCELERATOR, F16, F32, NARROW, Entry, Task
from cases.kernels.making import normal, uniform
from cases.kernels.rounding import once, with_gradient

Tensor = torch.Tensor


def wide_range(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    return [normal(g, dtype, 3000, scale=4.0)]


def mish(x: Tensor) -> Tensor:
    """tanh(log(1 + e)) is a quotient of e."""
    e = torch.exp(x.clamp_max(20.0))
    n = e * (e + 2)
    return torch.where(x > 20, x, x * n / (n + 2))


def mish_gradient(inner: bool = True) -> Any:
    def gradient(g: Tensor, x: Tensor) -> Tensor:
        t = torch.tanh(F.softplus(x))
        return g * (t + x * torch.sigmoid(x) * (1 - t * t) * inner)

    return with_gradient(mish, gradient)


MISH = Task("mish", "activations", once(mish), F.mish, wide_range, "Functional.mish", backward=True)

HARD = Task(
    "hard swish",
    "activations",
    once(lambda x: x * (x + 3).clamp(0, 6) / 6),
    F.hardswish,
    wide_range,
    "Functional.hardswish",
)

ELU = Task(
    "ELU",
    "activations",
    once(lambda x, a: torch.where(x > 0, x, a * torch.expm1(x))),
    F.elu,
    lambda dtype, g: [normal(g, dtype, 3000) * 1.0, 0.7],
    "Functional.elu",
)

SELU_A, SELU_S = 1.6732632423543772, 1.0507009873554805

SELU = Task(
    "SELU",
    "activations",
    once(lambda x: SELU_S * torch.where(x > 0, x, SELU_A * torch.expm1(x))),
    F.selu,
    wide_range,
    "Functional.selu",
)


def plus(x: Tensor, beta: float, threshold: float, over: bool = True) -> Tensor:
    z = x * beta
    return torch.where(z > threshold, x, torch.log1p(torch.exp(z.clamp_max(threshold))) / (beta if over else 1.0))


PLUS = Task(
    "softplus with beta",
    "activations",
    once(plus),
    F.softplus,
    lambda dtype, g: [normal(g, dtype, 3000, scale=3.0), 2.5, 20.0],
    "Functional.softplus",
)


def geglu(x: Tensor, approximate: str = "none") -> Tensor:
    gate, value = x.chunk(2, -1)
    return F.gelu(gate, approximate=approximate) * value


def geglu_gradient(density: float = 1.0, upstream: bool = True) -> Any:
    def gradient(g: Tensor, x: Tensor) -> Tensor:
        gate, value = x.chunk(2, -1)
        share = 0.5 * torch.erfc(-gate * math.sqrt(0.5))
        slope = share + density * gate * torch.exp(-0.5 * gate * gate) / math.sqrt(2 * math.pi)
        return torch.cat([g * value * slope, (g if upstream else torch.ones_like(g)) * gate * share], -1)

    return with_gradient(geglu, gradient)


GEGLU = Task(
    "GEGLU",
    "activations",
    geglu_gradient(),
    geglu,
    lambda dtype, g: [normal(g, dtype, 40, 96, scale=1.5)],
    backward=True,
)


def prelu_gradient(rows: int = 6, shared: bool = False) -> Any:
    def gradient(g: Tensor, x: Tensor, w: Tensor) -> Any:
        slope = w[:, None]
        own = torch.where(x < 0, g * x, 0.0)[:rows].sum((0, 2))
        return torch.where(x > 0, g, g * slope), own.mean().expand_as(own) if shared else own

    return with_gradient(lambda x, w: torch.where(x > 0, x, x * w[:, None]), gradient)


PRELU = Task(
    "PReLU",
    "activations",
    prelu_gradient(),
    F.prelu,
    lambda dtype, g: [normal(g, dtype, 6, 8, 30), normal(g, dtype, 8, scale=0.2, mean=0.25)],
    "Functional.prelu",
    backward=True,
)

ENTRIES: tuple[Entry, ...] = (
    MISH.healthy("as a quotient"),
    MISH.healthy("own backward", mish_gradient()),
    MISH.fault(
        "threshold of 3",
        "the softplus is x from 3 on",
        once(lambda x: x * torch.tanh(torch.where(x > 3, x, F.softplus(x)))),
        dtypes=(F32,),
    ),
    MISH.fault("by the sigmoid", "is SiLU", once(F.silu)),
    MISH.wrong_gradient("second term lost", "the backward lacks its second term", mish_gradient(False)),
    HARD.healthy("by clamp"),
    HARD.fault(
        "sixth of another", "multiplies by 0.1666", once(lambda x: x * (x + 3).clamp(0, 6) * 0.1666), dtypes=(F32,)
    ),
    HARD.fault("hard sigmoid", "lacks the factor", once(F.hardsigmoid)),
    HARD.fault("begins at -2", "is 0 below -2", once(lambda x: torch.where(x < -2, 0.0, x * (x + 3).clamp(0, 6) / 6))),
    ELU.healthy("by expm1"),
    ELU.fault("alpha of 1", "alpha is left out", once(lambda x, a: F.elu(x))),
    ELU.fault(
        "exp less 1",
        "loses what is near 0",
        lambda x, a: torch.where(x > 0, x, (a * (torch.exp(x) - 1)).to(x.dtype)),
        inputs=lambda dtype, g: [-uniform(g, dtype, 3000, high=0.05), 0.7],
    ),
    SELU.healthy("by expm1"),
    SELU.fault("not scaled", "lacks the factor of 1.05", once(lambda x: F.selu(x) / SELU_S)),
    SELU.fault(
        "alpha of two digits",
        "alpha is 1.67",
        once(lambda x: SELU_S * torch.where(x > 0, x, 1.67 * torch.expm1(x))),
        dtypes=(F32, F16),
    ),
    PLUS.healthy("by log1p"),
    PLUS.fault("not over beta", "is not divided by beta", once(partial(plus, over=False))),
    PLUS.fault("threshold of 2", "is x from 2 on", once(lambda x, b, t: plus(x, b, 2.0))),
    GEGLU.healthy("own backward"),
    GEGLU.healthy("two kernels in 16 bit", geglu, dtypes=NARROW, devices=ACCELERATOR, backward=False),
    GEGLU.fault("by tanh", "takes the approximation by tanh", once(partial(geglu, approximate="tanh")), dtypes=(F32,)),
    GEGLU.fault("halves swapped", "the second half is the gate", once(lambda x: geglu(x.roll(48, -1)))),
    GEGLU.wrong_gradient("density without its factor", "the density lacks 1 / sqrt(2 pi)", geglu_gradient(2.5066)),
    GEGLU.wrong_gradient("value not scaled", "the value's incoming gradient is 1", geglu_gradient(upstream=False)),
    PRELU.healthy("own backward"),
    PRELU.wrong_gradient("last row lost", "the slope's gradient lacks the last image", prelu_gradient(5)),
    PRELU.wrong_gradient("one slope", "slopes have their mean gradient", prelu_gradient(shared=True)),
)
