"""Quantisation: 4 bits by group, channels, float8 by row, learned scales, codebooks: closed entries."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from cases.kernels.entry import Entry, Task
from cases.kernels.making import integers, normal, state, uniform
from cases.kernels.rounding import once, up, with_gradient

Tensor = torch.Tensor


def packed(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """Two codes a byte, the even one below; groups of 32 have a scale and a zero point."""
    codes = integers(g, 16, 24, 128)
    byte = (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8)
    return [uniform(g, dtype, 24, 4, low=0.01, high=0.2), integers(g, 16, 24, 4), byte]


def unpacked(
    scale: Tensor,
    zero: Tensor,
    byte: Tensor,
    swap: bool = False,
    signed: bool = False,
    group: int = 32,
    late: Any = None,
) -> Tensor:
    value = byte.to(torch.int8) if signed else byte.int()
    low, high = value & 15, value >> 4
    codes = torch.stack([high, low] if swap else [low, high], -1).flatten(1).to(scale.dtype)
    s, z = (item.repeat_interleave(group, 1)[:, :128] for item in (scale, zero.to(scale.dtype)))
    return codes * s - late(z, s) if late else (codes - z) * s


def unpacked_reference(scale: Tensor, zero: Tensor, byte: Tensor) -> Tensor:
    out = torch.empty(24, 128, dtype=scale.dtype)
    out[:, ::2], out[:, 1::2] = (byte % 16).to(scale.dtype), (byte // 16).to(scale.dtype)
    return ((out.unflatten(1, (4, 32)) - zero[..., None]) * scale[..., None]).flatten(1)


INT4 = Task("4 bits by group", "quantisation", once(unpacked), unpacked_reference, packed)


def four_bits(x: Tensor, high: float = 15.0, down: bool = False, with_zero: bool = True, count: int = 32) -> Any:
    """Codes, scale and zero point of groups of 32, by their least and largest."""
    groups = up(x).unflatten(1, (-1, 32))
    low, top = groups[..., :count].amin(-1), groups[..., :count].amax(-1)
    low, top = (low.clamp_max(0), top.clamp_min(0)) if with_zero else (low, top)
    scale = (top - low) / high
    zero = torch.round(-low / scale)
    codes = torch.round(groups / scale[..., None]) if not down else torch.floor(groups / scale[..., None])
    codes = (codes + zero[..., None]).clamp(0, 15).to(torch.uint8).flatten(1)
    return codes, scale, zero


def four_bits_reference(x: Tensor) -> Any:
    rows = [four_bits(row[None]) for row in x]
    return tuple(torch.cat(list(items)) for items in zip(*rows, strict=True))


GROUPS = Task(
    "4-bit groups",
    "quantisation",
    four_bits,
    four_bits_reference,
    lambda dtype, g: [normal(g, dtype, 24, 128, mean=0.8)],
)


def float8(x: Tensor, amax: str = "row", bounded: bool = True, floor: float = 1e-4, power: bool = False) -> Any:
    """e4m3 with a scale a row; what the consumer divides by comes out as well."""
    wide = up(x)
    largest = wide.abs().amax(-1, keepdim=True)
    if amax == "first half":
        largest = wide[:, :64].abs().amax(-1, keepdim=True)
    if amax == "signed":
        largest = wide.amax(-1, keepdim=True)
    if amax == "tensor":
        largest = largest.amax().expand_as(largest)
    scale = largest.clamp_min(floor) / 448
    scale = torch.exp2(torch.ceil(torch.log2(scale))) if power else scale
    ready = wide / scale
    ready = ready.clamp(-448, 448) if bounded else ready.masked_fill(ready.abs() >= 448, torch.nan)
    return ready.float().to(torch.float8_e4m3fn).to(wide.dtype), scale


def skewed(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """Negative outliers; a row of zeros."""
    x = normal(g, torch.float64, 24, 128)
    x[:, 100] -= 9.0
    x[3] = 0.0
    return [x.to(dtype)]


FLOAT8 = Task("float8 by row", "quantisation", float8, float8, skewed)


def channel(x: Tensor, scale: Tensor, zero: Tensor, dim: int = 1, high: float = 255.0, early: bool = False) -> Tensor:
    """uint8 with a scale and a zero point a channel."""
    shape = [1, -1] if dim == 1 else [-1, 1]
    s, z = up(scale).view(shape), zero.view(shape)
    value = torch.round(up(x) / s + z) if early else torch.round(up(x) / s) + z
    return value.clamp(0, high).to(torch.uint8)


CHANNEL = Task(
    "uint8 by channel",
    "quantisation",
    channel,
    channel,
    lambda dtype, g: [
        (integers(g, 400, 64, 64, low=-200) / 64).to(dtype),
        torch.full((64,), 1 / 32, dtype=state(dtype)) * (1 + torch.arange(64) % 3),
        integers(g, 192, 64, low=64),
    ],
)


def learned(x: Tensor, scale: Tensor) -> Tensor:
    return torch.round((x / scale).clamp(-8, 7)) * scale


def learned_gradient(inside: bool = True, whole: bool = True, size: bool = True, ends: bool = True) -> Any:
    """Straight through inside the range; the scale's gradient as LSQ has it."""

    def gradient(g: Tensor, x: Tensor, scale: Tensor) -> Any:
        ratio = x / scale
        here = (ratio >= -8) & (ratio <= 7)
        gx = torch.where(here, g, 0.0) if inside else g
        step = torch.where(here, torch.round(ratio) - (ratio if whole else 0.0), ratio.clamp(-8, 7) if ends else 0.0)
        return gx, (g * step).sum() / ((x.numel() * 7) ** 0.5 if size else 1.0)

    return with_gradient(learned, gradient)


class _Through(torch.autograd.Function):
    """round, with the gradient of the identity."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.round(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0]


def learned_reference(x: Tensor, scale: Tensor) -> Tensor:
    share = 1 / (x.numel() * 7) ** 0.5
    own = scale * share + (scale * (1 - share)).detach()
    return _Through.apply((x / own).clamp(-8, 7)) * own


LEARNED = Task(
    "learned scale",
    "quantisation",
    learned_gradient(),
    learned_reference,
    lambda dtype, g: [normal(g, dtype, 24, 64, scale=1.5), torch.tensor(0.3125, dtype=dtype)],
    backward=True,
)


def codebook(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    return [normal(g, dtype, 40, 64)]


NF4 = (
    -1.0,
    -0.6962,
    -0.5251,
    -0.3949,
    -0.2844,
    -0.1848,
    -0.0911,
    0.0,
    0.0796,
    0.1609,
    0.2461,
    0.3379,
    0.4407,
    0.5626,
    0.7230,
    1.0,
)


def normal_float(x: Tensor, levels: Any = NF4, own: bool = True) -> Tensor:
    """There and back through 16 levels of blocks of 64, scaled by their largest."""
    wide = up(x)
    table = torch.tensor(levels, dtype=wide.dtype)
    largest = (wide.abs() if own else wide).amax(-1, keepdim=True)
    near = torch.bucketize(wide / largest, (table[1:] + table[:-1]) / 2)
    return (table[near] * largest).to(x.dtype)


def normal_float_reference(x: Tensor) -> Tensor:
    table = torch.tensor(NF4, dtype=x.dtype)
    largest = x.abs().amax(-1, keepdim=True)
    return table[((x / largest)[..., None] - table).abs().argmin(-1)] * largest


BOOK = Task("normal float", "quantisation", normal_float, normal_float_reference, codebook)

ENTRIES: tuple[Entry, ...] = (
    INT4.healthy("by masks"),
    INT4.fault("nibbles swapped", "the upper nibble comes first", once(partial(unpacked, swap=True))),
    INT4.fault("signed shift", "the upper nibble keeps the byte's sign", once(partial(unpacked, signed=True))),
    INT4.fault("groups of 64", "scales are those of groups of 64", once(partial(unpacked, group=64))),
    INT4.fault("zero of one", "the zero point is one more", once(partial(unpacked, late=lambda z, s: (z + 1) * s))),
    INT4.fault("zero not scaled", "takes away an unscaled zero point", once(partial(unpacked, late=lambda z, s: z))),
    GROUPS.healthy("by least and largest"),
    GROUPS.fault("sixteen steps", "divides the range by 16", partial(four_bits, high=16.0)),
    GROUPS.fault("floor", "rounds down", partial(four_bits, down=True)),
    GROUPS.fault(
        "range without zero",
        "the range need not hold 0",
        partial(four_bits, with_zero=False),
        inputs=lambda dtype, g: [normal(g, dtype, 24, 128, mean=2.5)],
    ),
    GROUPS.fault("range of 16", "the range is that of the first 16 elements", partial(four_bits, count=16)),
    FLOAT8.healthy("scale a row"),
    FLOAT8.fault("no saturation", "the largest becomes NaN", partial(float8, bounded=False)),
    FLOAT8.fault("largest with its sign", "the largest is not that of the magnitudes", partial(float8, amax="signed")),
    FLOAT8.fault("first tile's largest", "the largest is that of the first 64", partial(float8, amax="first half")),
    FLOAT8.fault("one scale", "all rows have one scale", partial(float8, amax="tensor")),
    FLOAT8.fault("zero row", "a row of zeros is 0 / 0", partial(float8, floor=0.0)),
    FLOAT8.fault("power of two", "scales are powers of two", partial(float8, power=True)),
    CHANNEL.healthy("rounded, then the zero point"),
    CHANNEL.fault("scale of the row", "scales and zero points go along rows", partial(channel, dim=0)),
    CHANNEL.fault("zero point before", "adds the zero point before rounding", partial(channel, early=True)),
    CHANNEL.fault(
        "to 254",
        "ends at 254",
        partial(channel, high=254.0),
        inputs=lambda dtype, g: [
            (integers(g, 800, 64, 64, low=-400) / 64).to(dtype),
            torch.full((64,), 1 / 32, dtype=state(dtype)),
            integers(g, 192, 64, low=64),
        ],
    ),
    LEARNED.healthy("own backward"),
    LEARNED.wrong_gradient("through the ends", "clamped inputs have a gradient", learned_gradient(inside=False)),
    LEARNED.wrong_gradient(
        "scale by the code", "the scale has no gradient by the input", learned_gradient(whole=False)
    ),
    LEARNED.wrong_gradient("no share", "the scale's gradient is not made smaller", learned_gradient(size=False)),
    LEARNED.wrong_gradient("ends left out", "clamped inputs do not move the scale", learned_gradient(ends=False)),
    BOOK.healthy("by borders"),
    BOOK.fault("largest with its sign", "blocks are scaled by their largest number", partial(normal_float, own=False)),
    BOOK.fault(
        "even levels", "levels are evenly apart", partial(normal_float, levels=tuple(n / 7.5 - 1 for n in range(16)))
    ),
)
