"""Functions of one or two numbers: exponentials, logarithms, signs, ranges, complex products: closed entries."""

from __future__ import annotations

import math
from functools import partial

import torch

from cases.kernels.entry import F16, F32, Entry, Task
from cases.kernels.making import normal, uniform
from cases.kernels.rounding import cut, once

Tensor = torch.Tensor


def series(x: Tensor) -> Tensor:
    """exp by 2^n and a polynomial of degree 7."""
    n = torch.round(x * math.log2(math.e))
    r = x - n * math.log(2)
    total = torch.full_like(r, 1 / 5040)
    for k in (720, 120, 24, 6, 2, 1, 1):
        total = total * r + 1 / k
    return torch.ldexp(total, n.to(torch.int32))


EXP = Task(
    "exp",
    "activations",
    once(torch.exp),
    torch.exp,
    lambda dtype, g: [uniform(g, dtype, 3000, low=-9.0, high=9.0)],
    "Torch.exp",
)

SINE = Task(
    "sine",
    "activations",
    once(torch.sin),
    torch.sin,
    lambda dtype, g: [normal(g, dtype, 3000, scale=30.0)],
    "Torch.sin",
)


def reduced_sine(x: Tensor) -> Tensor:
    """A pi of 3 digits more than bfloat16 has."""
    n = torch.round(x / math.pi)
    r = x - n * 3.1415
    return torch.sin(r) * (1 - 2 * (n % 2))


LOG1P = Task(
    "log1p",
    "activations",
    once(torch.log1p),
    torch.log1p,
    lambda dtype, g: [torch.cat([uniform(g, dtype, 1500, low=-3e-4, high=3e-4), uniform(g, dtype, 1500, high=5.0)])],
    "Torch.log1p",
)

SIGN = Task(
    "copysign",
    "activations",
    lambda x, y: torch.where(torch.signbit(y), -x.abs(), x.abs()),
    torch.copysign,
    lambda dtype, g: [normal(g, dtype, 400), torch.tensor([0.0, -0.0, 2.0, -3.0]).repeat(100).to(dtype)],
    "Torch.copysign",
)

DIVISORS = torch.tensor([4.0, -2.0, 8.0])

REMAINDER = Task(
    "remainder",
    "activations",
    lambda x, y: x - torch.floor(x / y) * y,
    torch.remainder,
    lambda dtype, g: [
        (torch.arange(-600.0, 600.0) / 8).to(dtype),
        torch.tensor([4.0, -2.0, 8.0]).repeat(400).to(dtype),
    ],
    "Torch.remainder",
)


def with_nan(dtype: torch.dtype, g: torch.Generator) -> Tensor:
    return normal(g, dtype, 2000, scale=2.0).masked_fill(torch.rand(2000, generator=g) < 0.01, torch.nan)


CLAMP = Task(
    "clamp",
    "activations",
    lambda x, low, high: torch.where(x < low, low, torch.where(x > high, high, x)).to(x.dtype),
    torch.clamp,
    lambda dtype, g: [
        normal(g, dtype, 2000, scale=2.0).masked_fill(torch.rand(2000, generator=g) < 0.01, torch.nan),
        -1.0,
        1.5,
    ],
    "Torch.clamp",
)

ANGLE = Task(
    "atan2",
    "activations",
    once(torch.atan2),
    torch.atan2,
    lambda dtype, g: [normal(g, dtype, 3000), normal(g, dtype, 3000)],
    "Torch.atan2",
)

HYPOT = Task(
    "hypot",
    "activations",
    once(torch.hypot),
    torch.hypot,
    lambda dtype, g: [normal(g, dtype, 2000, scale=300.0), normal(g, dtype, 2000, scale=300.0)],
    "Torch.hypot",
)

XLOGY = Task(
    "xlogy",
    "activations",
    once(
        lambda x, y: torch.where(x == 0, torch.zeros_like(x), x * torch.log(torch.where(x == 0, torch.ones_like(y), y)))
    ),
    torch.xlogy,
    lambda dtype, g: [
        torch.relu(normal(g, dtype, 2000)),
        uniform(g, dtype, 2000).masked_fill(torch.arange(2000) % 400 == 0, 0.0),
    ],
    "Torch.xlogy",
)


def complex_product(x: Tensor, y: Tensor, sign: float = -1.0, other: bool = False) -> Tensor:
    (a, b), (c, d) = x.unbind(-1), y.unbind(-1)
    d = -d if other else d
    return torch.stack([a * c + sign * b * d, a * d + b * c], -1)


COMPLEX = Task(
    "complex product",
    "activations",
    once(complex_product),
    lambda x, y: torch.view_as_real(torch.view_as_complex(x.double()) * torch.view_as_complex(y.double())).to(x.dtype),
    lambda dtype, g: [normal(g, dtype, 500, 2), normal(g, dtype, 500, 2)],
)

ROOT = Task(
    "rsqrt",
    "activations",
    once(torch.rsqrt),
    torch.rsqrt,
    lambda dtype, g: [uniform(g, dtype, 3000, low=1e-3, high=50.0)],
    "Torch.rsqrt",
)


def guessed(x: Tensor, steps: int) -> Tensor:
    """The bits' trick and Newton steps."""
    y = (0x5F3759DF - (x.float().view(torch.int32) >> 1)).view(torch.float32).to(x.dtype)
    for _ in range(steps):
        y = y * (1.5 - 0.5 * x * y * y)
    return y


def atanh_series(x: Tensor, terms: int = 8, two: float = math.log(2)) -> Tensor:
    """Mantissas about 1, by the odd powers of (m - 1) / (m + 1)."""
    m, power = torch.frexp(x)
    low = m < math.sqrt(0.5)
    m, power = torch.where(low, 2 * m, m), power - low.to(power.dtype)
    s = (m - 1) / (m + 1)
    total = torch.zeros_like(s)
    for n in range(terms - 1, 0, -1):
        total = (total + 1 / (2 * n + 1)) * s * s
    return power * two + 2 * s * (1 + total)


LOG = Task(
    "logarithm",
    "activations",
    once(atanh_series),
    torch.log,
    lambda dtype, g: [
        torch.cat([uniform(g, dtype, 1500, low=0.5, high=2.0), uniform(g, dtype, 1500, low=0.01, high=90.0)])
    ],
    "Torch.log",
)

ENTRIES: tuple[Entry, ...] = (
    EXP.healthy("by a polynomial", once(series), close=1e-6),
    EXP.fault(
        "by 2^x of 16 bits",
        "log2(e) x is cut to 16 bits",
        once(lambda x: torch.exp2(cut(x * math.log2(math.e), 16))),
        dtypes=(F32,),
    ),
    EXP.fault("flushed", "is 0 below 1e-3", once(lambda x: torch.where(x < -6.9, 0.0, x.exp()))),
    EXP.fault("by 1.4427", "log2(e) has five digits", once(lambda x: torch.exp2(x * 1.4427)), dtypes=(F32,)),
    SINE.healthy("in float32"),
    SINE.fault("pi of five digits", "angles are reduced by 3.1415", once(reduced_sine), dtypes=(F32, F16)),
    SINE.fault(
        "only one turn", "angles beyond a turn are clamped", once(lambda x: torch.sin(x.clamp(-6.2831853, 6.2831853)))
    ),
    LOG1P.healthy("in float32"),
    LOG1P.fault("log of 1 + x", "loses what is near 0", lambda x: torch.log(1 + x), dtypes=(F32, F16)),
    LOG1P.fault(
        "x near 0",
        "is x below 0.1",
        once(lambda x: torch.where(x.abs() < 0.1, x, x.log1p())),
        inputs=lambda dtype, g: [uniform(g, dtype, 3000, low=0.001, high=0.2)],
    ),
    SIGN.healthy("by the sign's bit"),
    SIGN.fault("negative zero", "-0 counts as positive", lambda x, y: torch.where(y < 0, -x.abs(), x.abs())),
    REMAINDER.healthy("by floor"),
    REMAINDER.fault("towards zero", "has the sign of the first", lambda x, y: x - torch.trunc(x / y) * y),
    CLAMP.healthy("by comparison"),
    CLAMP.fault("NaN clamped", "NaN becomes the lower end", lambda x, low, high: x.nan_to_num(low).clamp(low, high)),
    ANGLE.healthy("in float32"),
    ANGLE.fault("half plane", "is atan of the quotient", once(lambda y, x: torch.atan(y / x))),
    ANGLE.fault(
        "second quadrant",
        "lacks pi where y is positive",
        once(lambda y, x: torch.where((x < 0) & (y > 0), torch.atan(y / x), torch.atan2(y, x))),
    ),
    HYPOT.healthy("in float32"),
    HYPOT.fault(
        "squares overflow", "squares in float16 are infinite", lambda x, y: (x * x + y * y).sqrt(), dtypes=(F16,)
    ),
    HYPOT.fault(
        "largest and half",
        "is the larger plus three eighths of the smaller",
        once(lambda x, y: torch.maximum(x.abs(), y.abs()) + 0.375 * torch.minimum(x.abs(), y.abs())),
    ),
    XLOGY.healthy("zeros first"),
    XLOGY.fault(
        "0 times -inf",
        "0 log 0 is NaN",
        once(lambda x, y: x * y.log()),
        inputs=lambda dtype, g: [
            torch.zeros(2000).to(dtype) + (torch.arange(2000) % 2).to(dtype),
            (torch.arange(2000) % 2 / 2).to(dtype),
        ],
    ),
    XLOGY.fault(
        "eps in the logarithm", "takes log(y + 1e-3)", once(lambda x, y: x * (y + 1e-3).log()), dtypes=(F32, F16)
    ),
    COMPLEX.healthy("four products"),
    COMPLEX.fault("added", "the product of the imaginary parts is added", once(partial(complex_product, sign=1.0))),
    COMPLEX.fault("conjugate", "the second is conjugated", once(partial(complex_product, other=True))),
    ROOT.healthy("in float32"),
    ROOT.healthy("three Newton steps", once(partial(guessed, steps=4)), close=1e-6),
    ROOT.fault("one Newton step", "one step after the guess", once(partial(guessed, steps=1)), dtypes=(F32, F16)),
    ROOT.fault("12 bits", "has 12 bits", once(lambda x: cut(torch.rsqrt(x), 12)), dtypes=(F32,)),
    LOG.healthy("by a series", close=1e-6),
    LOG.fault("short series", "the series has three terms", once(partial(atanh_series, terms=3)), dtypes=(F32,)),
    LOG.fault("log 2 of 11 bits", "log(2) is 0.6929", once(partial(atanh_series, two=0.6929)), dtypes=(F32,)),
)
