"""Rotary embedding: interleaved, partial, packed, stretched, two axes: closed entries."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch

from cases.kernels.entry import F16, F32, NARROW, Entry, Task
from cases.kernels.making import normal
from cases.kernels.rounding import cut, once, stepwise, with_gradient

Tensor = torch.Tensor
STARTS = (0, 9, 10, 26, 40)


def frequencies(x: Tensor, width: int, base: float = 10_000.0) -> Tensor:
    """Computed in float64 and kept in the dtype that the kernel computes in."""
    return (base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)).to(x.dtype)


def positions(x: Tensor, offset: int = 0, packed: bool = True) -> Tensor:
    """They begin anew with each packed sequence."""
    if not packed:
        return (torch.arange(40) + offset).to(x.dtype)
    starts = torch.tensor(STARTS)
    number = torch.bucketize(torch.arange(40), starts[1:], right=True)
    return (torch.arange(40) - starts[number] + offset).to(x.dtype)


def neighbours(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


def halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = x.chunk(2, -1)
    return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)


def turned(
    x: Tensor, width: int = 24, packed: bool = True, offset: int = 17, base: float = 10_000.0, by: Any = neighbours
) -> Tensor:
    """The first 24 of 32 channels."""
    angles = positions(x, offset, packed)[:, None] * frequencies(x, width, base)
    rows = x[..., :24]
    return torch.cat([by(rows, angles.cos()[:, :12], angles.sin()[:, :12]), x[..., 24:]], -1)


def complex_turned(x: Tensor) -> Tensor:
    angles = positions(x, 17)[:, None] * frequencies(x, 24)
    rows = torch.view_as_complex(x[..., :24].unflatten(-1, (12, 2)).contiguous())
    both = torch.view_as_real(rows * torch.polar(torch.ones_like(angles), angles)).flatten(-2)
    return torch.cat([both, x[..., 24:]], -1)


def turned_back(passed: bool = True, sign: float = -1.0) -> Any:
    def gradient(g: Tensor, x: Tensor) -> Tensor:
        angles = positions(x, 17)[:, None] * frequencies(x, 24)
        rest = g[..., 24:] if passed else torch.zeros_like(g[..., 24:])
        return torch.cat([neighbours(g[..., :24], angles.cos(), sign * angles.sin()), rest], -1)

    return with_gradient(turned, gradient)


PARTIAL = Task(
    "partial and packed",
    "rope",
    once(turned),
    complex_turned,
    lambda dtype, g: [normal(g, dtype, 3, 40, 32)],
    backward=True,
)


def stretched(x: Tensor, factor: float = 8.0, ramp: bool = True, temper: bool = True, turned_by: Any = None) -> Tensor:
    """YaRN: slow frequencies are divided by the factor, fast ones are not, those between by a ramp."""
    freq = frequencies(x, 32)
    low, high = (32 * math.log(256 / (n * 2 * math.pi)) / (2 * math.log(10_000)) for n in (32, 1))
    low, high = math.floor(low), math.ceil(high)
    slow = ((torch.arange(16).to(x.dtype) - low) / (high - low)).clamp(0, 1) if ramp else torch.ones(16).to(x.dtype)
    freq = freq / factor * slow + freq * (1 - slow)
    angles = (torch.arange(40) * 9).to(x.dtype)[:, None] * freq
    scale = 0.1 * math.log(factor) + 1 if temper else 1.0
    return halves(x, angles.cos() * scale, angles.sin() * scale)


def stretched_reference(x: Tensor) -> Tensor:
    freq = 10_000 ** -(torch.arange(16, dtype=torch.float64) / 16)
    low = math.floor(16 * math.log(256 / (64 * math.pi)) / math.log(10_000))
    high = math.ceil(16 * math.log(256 / (2 * math.pi)) / math.log(10_000))
    slow = ((torch.arange(16, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)
    angles = torch.arange(40, dtype=torch.float64)[:, None] * 9 * torch.lerp(freq, freq / 8, slow)
    cos, sin = (torch.cat([table, table], -1).to(x.dtype) for table in (angles.cos(), angles.sin()))
    other = torch.cat([-x[..., 16:], x[..., :16]], -1)
    return (x * cos + other * sin) * (0.1 * math.log(8.0) + 1)


STRETCHED = Task(
    "YaRN",
    "rope",
    once(stretched),
    stretched_reference,
    lambda dtype, g: [normal(g, dtype, 3, 40, 32)],
    dtypes=NARROW,
)


def grown(x: Tensor, factor: float = 4.0, power: float = 32 / 30, old: float = 10_000.0) -> Tensor:
    """NTK: another base."""
    angles = torch.arange(40).to(x.dtype)[:, None] * frequencies(x, 32, old * factor**power)
    return halves(x, angles.cos(), angles.sin())


GROWN = Task(
    "NTK base",
    "rope",
    once(grown),
    lambda x: halves(x, *_tables(x)),
    lambda dtype, g: [normal(g, dtype, 3, 40, 32)],
    backward=True,
)


def _tables(x: Tensor) -> tuple[Tensor, Tensor]:
    base = 10_000.0 * 4.0 ** (32 / 30)
    angles = torch.outer(torch.arange(40.0).to(x.dtype), base ** -(torch.arange(0, 32, 2).to(x.dtype) / 32))
    return angles.cos(), angles.sin()


def image(x: Tensor, columns: int = 8, swapped: bool = False) -> Tensor:
    """Half of the channels turn by the row, half by the column of a patch."""
    at = torch.arange(40)
    axes = (at // columns, at % columns)
    freq = frequencies(x, 16, 100.0)
    outs = []
    for part, axis in zip(x.chunk(2, -1), axes[::-1] if swapped else axes, strict=True):
        angles = axis.to(x.dtype)[:, None] * freq
        outs.append(halves(part, angles.cos(), angles.sin()))
    return torch.cat(outs, -1)


def image_reference(x: Tensor) -> Tensor:
    grid = x.unflatten(1, (5, 8))
    freq = 100 ** -(torch.arange(0, 16, 2).to(x.dtype) / 16)
    rows = torch.arange(5).to(x.dtype)[:, None, None] * freq
    columns = torch.arange(8).to(x.dtype)[None, :, None] * freq
    first = halves(grid[..., :16], rows.cos(), rows.sin())
    return torch.cat([first, halves(grid[..., 16:], columns.cos(), columns.sin())], -1).flatten(1, 2)


IMAGE = Task(
    "two axes", "rope", once(image), image_reference, lambda dtype, g: [normal(g, dtype, 2, 40, 32)], backward=True
)


def reduced(x: Tensor, pi: float = 6.28125) -> Tensor:
    """The sine after the multiples of a rounded 2 pi are taken away."""
    angles = (torch.arange(40) * 25).to(x.dtype)[:, None] * frequencies(x, 32)
    angles = angles - torch.floor(angles / (2 * math.pi)) * pi
    return halves(x, angles.cos(), angles.sin())


FAR = Task(
    "far positions",
    "rope",
    once(partial(reduced, pi=2 * math.pi)),
    partial(reduced, pi=2 * math.pi),
    lambda dtype, g: [normal(g, dtype, 3, 40, 32)],
    dtypes=NARROW,
)


def stored(x: Tensor, by: Any) -> Tensor:
    angles = positions(x)[:, None] * frequencies(x, 32)
    return halves(x, by(angles.cos()), by(angles.sin()))


STORED = Task(
    "stored tables",
    "rope",
    once(partial(stored, by=lambda x: x)),
    lambda x: stored(x, lambda y: y),
    lambda dtype, g: [normal(g, dtype, 3, 40, 32)],
    backward=True,
)

ENTRIES: tuple[Entry, ...] = (
    PARTIAL.healthy("neighbours"),
    PARTIAL.healthy("own backward", turned_back()),
    PARTIAL.fault("positions go on", "positions do not begin anew", once(partial(turned, packed=False))),
    PARTIAL.fault("offset lost", "the cache's 17 positions are forgotten", once(partial(turned, offset=0))),
    PARTIAL.fault("width of the head", "frequencies are those of 32 channels", once(partial(turned, width=32))),
    PARTIAL.fault("halves", "turns halves in place of neighbours", once(partial(turned, by=halves))),
    PARTIAL.fault("base of 500,000", "takes another model's base", once(partial(turned, base=5e5))),
    PARTIAL.wrong_gradient("rest without gradient", "channels that pass have no gradient", turned_back(False)),
    PARTIAL.wrong_gradient("gradient turned forwards", "the backward turns the same way", turned_back(sign=1.0)),
    STRETCHED.healthy("ramp"),
    STRETCHED.fault("all slowed", "all frequencies are divided", once(partial(stretched, ramp=False))),
    STRETCHED.fault("no temper", "lacks the factor of the attention", once(partial(stretched, temper=False))),
    STRETCHED.fault("factor of 4", "divides by 4", once(partial(stretched, factor=4.0))),
    GROWN.healthy("halves"),
    GROWN.fault("power of 1", "the base grows by the mere factor", once(partial(grown, power=1.0))),
    GROWN.fault("old base", "the base does not grow", once(partial(grown, factor=1.0))),
    IMAGE.healthy("row and column"),
    IMAGE.fault("axes swapped", "the first half turns by the column", once(partial(image, swapped=True))),
    IMAGE.fault("width of the padded image", "a row of the image has 10 patches", once(partial(image, columns=10))),
    FAR.healthy("reduced angles"),
    FAR.fault("rounded 2 pi", "angles are reduced by 6.28125", once(reduced)),
    STORED.healthy("in float32"),
    STORED.fault("11-bit tables", "tables have 11 bits", once(partial(stored, by=lambda x: cut(x, 11))), dtypes=(F32,)),
    STORED.fault(
        "int8 tables",
        "tables are int8 by 127",
        once(partial(stored, by=lambda x: torch.round(x * 127) / 127)),
        dtypes=(F32, F16),
    ),
    STORED.fault(
        "float8 tables", "tables go through float8_e4m3", once(partial(stored, by=stepwise(torch.float8_e4m3fn)))
    ),
)
