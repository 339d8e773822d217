"""Sums and products of single numbers, and casts: how the last bit comes about: closed entries."""

from __future__ import annotations

from typing import Any

import torch

from cases.kernels.entry import BF16, F16, F32, NARROW, Entry, Task
from cases.kernels.making import integers, normal, uniform
from cases.kernels.rounding import by_way_of, once, toward_zero, up

Tensor = torch.Tensor
BITS = {BF16: 8, F16: 11}


def ties_away(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Half a step is added to the magnitude before the excess is cut off."""
    near = x.to(dtype).to(x.dtype)
    mantissa, power = torch.frexp(x)
    step = torch.ldexp(torch.ones_like(x), power - BITS[dtype])
    tie = torch.frexp(x)[0].mul(2 ** (BITS[dtype] + 1)).remainder(2).eq(1) & (mantissa != 0)
    return torch.where(tie & (near.abs() < x.abs()), near + torch.sign(x) * step, near).to(dtype)


def upward(x: Tensor, dtype: torch.dtype) -> Tensor:
    near = x.to(dtype)
    return torch.where(near.to(x.dtype) < x, torch.nextafter(near, torch.full_like(near, torch.inf)), near)


def odd(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Ties go to the odd neighbour."""
    away, near = ties_away(x, dtype), x.to(dtype)
    tie = (away != near) | ((near.to(x.dtype) - x).abs() == (toward_zero(x, dtype).to(x.dtype) - x).abs()) & (
        near.to(x.dtype).abs() > x.abs()
    )
    return torch.where(tie, torch.where(away != near, away, toward_zero(x, dtype)), near)


def guarded(bits: int) -> Any:
    """Rounded after all but some bits beyond the dtype's are cut off."""

    def narrowing(x: Tensor, dtype: torch.dtype) -> Tensor:
        mantissa, power = torch.frexp(x)
        scale = 2.0 ** (BITS[dtype] + bits)
        return torch.ldexp(torch.trunc(mantissa * scale) / scale, power).to(dtype)

    return narrowing


def flushed(x: Tensor, dtype: torch.dtype) -> Tensor:
    near = x.to(dtype)
    return torch.where(near.abs() < torch.finfo(dtype).tiny, torch.zeros_like(near), near)


def residual(x: Tensor, y: Tensor) -> Tensor:
    return x + y


ADD = Task(
    "residual sum",
    "activations",
    once(residual),
    residual,
    lambda dtype, g: [normal(g, dtype, 4000, scale=2.0), normal(g, dtype, 4000)],
    dtypes=NARROW,
)

SCALED = Task(
    "scaled difference",
    "activations",
    once(lambda x, y: (x - y) * 0.1),
    lambda x, y: (x - y) * 0.1,
    lambda dtype, g: [normal(g, dtype, 4000), normal(g, dtype, 4000)],
    dtypes=NARROW,
)

SMALL = Task(
    "product of small numbers",
    "activations",
    once(lambda x, y: x * y),
    torch.mul,
    lambda dtype, g: [normal(g, dtype, 4000, scale=3e-3), normal(g, dtype, 4000, scale=8e-3)],
    "Torch.mul",
    dtypes=(F16,),
)


def bits(x: Tensor) -> Tensor:
    """The upper 16 bits of float32 after nearest, ties to even, by integers; NaN stays NaN."""
    raw = x.view(torch.int32)
    even = (raw >> 16) & 1
    rounded = (raw + 0x7FFF + even) & -65536
    return torch.where(x.isnan(), x, rounded.view(torch.float32)).to(BF16)


def cast(change: Any) -> Any:
    return lambda x: x if x.dtype is torch.float64 else change(x)


def special(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """Numbers of many sizes, NaN of many payloads, infinities, halves between two bfloat16."""
    x = normal(g, F32, 4000) * torch.exp2(uniform(g, F32, 4000, low=-40.0, high=40.0))
    x[:64] = torch.arange(0x7FFFFFC0, 0x80000000).to(torch.int32).view(F32)
    x[64], x[65] = torch.inf, -torch.inf
    x[100:1100] = ((integers(g, 128, 1000) * 2 + 257) / 256).float()
    return [x.to(dtype)]


CAST = Task("cast to bfloat16", "activations", cast(bits), lambda x: x * 1, special, dtypes=(F32,))


def added_bits(x: Tensor, more: int, nan: bool = True) -> Tensor:
    raw = x.view(torch.int32)
    rounded = ((raw.long() + more) & 0xFFFF0000).to(torch.int32).view(F32)
    return (torch.where(x.isnan(), x, rounded) if nan else rounded).to(BF16)


def even_without_nan(x: Tensor) -> Tensor:
    """The carry runs through a NaN's payload into the sign."""
    raw = x.view(torch.int32).long() & 0xFFFFFFFF
    rounded = (raw + 0x7FFF + ((raw >> 16) & 1)) & 0xFFFF0000
    return torch.where(rounded > 0x7FFFFFFF, rounded - (1 << 32), rounded).to(torch.int32).view(F32).to(BF16)


AVERAGED = Task(
    "mean of two",
    "activations",
    once(lambda x, y: (x + y) * 0.5),
    lambda x, y: (x + y) / 2,
    lambda dtype, g: [
        (integers(g, 256, 4000, low=128) / 128).to(dtype),
        (integers(g, 256, 4000, low=128) / 128).to(dtype),
    ],
    dtypes=(BF16,),
)


def multiplied(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return up(x) + up(y) * up(z)


FUSED = Task(
    "multiply and add",
    "activations",
    once(multiplied),
    torch.addcmul,
    lambda dtype, g: [normal(g, dtype, 4000) for _ in range(3)],
    dtypes=NARROW,
)


ENTRIES: tuple[Entry, ...] = (
    ADD.healthy("in float32"),
    ADD.fault("ties away", "ties go away from 0", once(residual, ties_away), dtypes=(BF16,)),
    ADD.fault("upward", "rounds towards infinity", once(residual, upward)),
    ADD.fault("no sticky bit", "cuts off all but one bit more", once(residual, guarded(1)), dtypes=(BF16,)),
    SCALED.healthy("in float32"),
    SCALED.fault(
        "16-bit difference cut",
        "the difference is cut to the dtype",
        lambda x, y: (toward_zero(up(x) - up(y), x.dtype).to(up(x).dtype) * 0.1).to(x.dtype),
    ),
    SCALED.fault("upward", "rounds towards infinity", once(lambda x, y: (x - y) * 0.1, upward)),
    SCALED.fault("cut", "cuts where it should round", once(lambda x, y: (x - y) * 0.1, toward_zero)),
    SCALED.fault(
        "factor of the dtype",
        "0.1 is one of float8",
        once(lambda x, y: (x - y) * float(torch.tensor(0.1).to(torch.float8_e4m3fn))),
    ),
    SMALL.healthy("in float32"),
    SMALL.fault("flushed", "subnormal results are 0", once(lambda x, y: x * y, flushed)),
    SMALL.fault("by way of bfloat16", "goes through bfloat16", once(lambda x, y: x * y, by_way_of(BF16))),
    CAST.healthy("by integers"),
    CAST.healthy("as the framework does", cast(lambda x: x.to(BF16))),
    CAST.fault("cut", "the lower bits are cut off", cast(lambda x: added_bits(x, 0))),
    CAST.fault("ties up", "half is added whatever the last bit", cast(lambda x: added_bits(x, 0x8000))),
    CAST.fault("NaN to zero", "NaN overflows to -0", cast(even_without_nan)),
    CAST.fault("by way of float16", "goes through float16", cast(lambda x: x.to(F16).to(BF16))),
    CAST.fault("saturated", "infinities become the largest number", cast(lambda x: bits(x.clamp(-3.38e38, 3.38e38)))),
    AVERAGED.healthy("in float32"),
    AVERAGED.fault("ties up", "halves go up", once(lambda x, y: (x + y) * 0.5, upward)),
    AVERAGED.fault(
        "halves first",
        "each is halved and cut to integers of 1/128",
        lambda x, y: ((torch.floor(x.float() * 64) + torch.floor(y.float() * 64)) / 128).to(x.dtype),
    ),
    FUSED.healthy("in float32"),
    FUSED.healthy("one rounding", once(lambda x, y, z: torch.addcmul(x, y, z))),
    FUSED.fault("other order", "adds before it multiplies", once(lambda x, y, z: (x + y) * z)),
    FUSED.fault(
        "product cut",
        "the product is cut to the dtype",
        lambda x, y, z: (up(x) + toward_zero(up(y) * up(z), x.dtype).to(up(x).dtype)).to(x.dtype),
    ),
)
