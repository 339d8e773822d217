"""Random numbers: by counters with a seed, stochastic rounding, and draws of several distributions: closed entries."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from cases.kernels.entry import BF16, F32, Entry, Task
from cases.kernels.making import normal, uniform
from cases.kernels.rounding import once, up, with_gradient

Tensor = torch.Tensor
N = 60_000


def mixed(counter: Tensor, seed: int) -> Tensor:
    """24 bits for each counter."""
    x = (counter + seed * 0x9E3779B1) & 0xFFFFFFFF
    for factor, shift in ((0x7FEB352D, 15), (0x846CA68B, 16)):
        x = ((x ^ (x >> 16)) * factor) & 0xFFFFFFFF
        x = x ^ (x >> shift)
    return x >> 8


def kept(n: int, seed: int, p: float, tile: int = 0, stride: int = 0) -> Tensor:
    """What dropout keeps; tile and stride: where each tile's counters begin, if not where its elements do."""
    at = torch.arange(n)
    counter = at if not tile else at % tile + at // tile * stride
    return mixed(counter, seed).double() / 2**24 >= p


def seeded(mask: Any = kept, scale: float = 1 / 0.7) -> Any:
    def run(x: Tensor, residual: Tensor, seed: int) -> Tensor:
        return x * mask(x.numel(), seed, 0.3).view(x.shape) * scale + residual

    return run


def seeded_gradient(mask: Any = kept, scale: float = 1 / 0.7) -> Any:
    def gradient(g: Tensor, x: Tensor, residual: Tensor, seed: int) -> Any:
        return g * mask(x.numel(), seed, 0.3).view(x.shape) * scale, g, None

    return with_gradient(seeded(), gradient)


SEEDED = Task(
    "dropout by counters and a residual",
    "random",
    seeded_gradient(),
    seeded(),
    lambda dtype, g: [normal(g, dtype, 40, 100, mean=1.0), normal(g, dtype, 40, 100), 1234],
    backward=True,
)


def stochastic(x: Tensor, seed: int, bits: int = 16, magnitude: bool = True, tile: int = 0) -> Tensor:
    """float32 with 16 bits cut off after noise is added to them."""
    at = torch.arange(x.numel())
    noise = (mixed(at % tile if tile else at, seed) & 0xFFFF) >> (16 - bits) << (16 - bits)
    raw = x.float().view(torch.int32)
    noise = noise if magnitude else torch.where(raw < 0, 0, noise)
    return ((raw + noise.to(torch.int32).view(x.shape)) & -65536).view(torch.float32).to(x.dtype)


STOCHASTIC = Task(
    "stochastic rounding",
    "random",
    stochastic,
    stochastic,
    lambda dtype, g: [normal(g, dtype, 5000), 77],
    dtypes=(F32,),
)


def noised(x: Tensor, seed: int, rows: int = 1, turn: float = 2 * math.pi, second: int = 1) -> Tensor:
    """Box and Muller: a pair of elements comes of two counters."""
    at = torch.arange(x.numel() // 2) // rows * rows
    u = (mixed(2 * at, seed).to(x.dtype) + 1) / 2**24
    angle = mixed(2 * at + second, seed).to(x.dtype) / 2**24 * turn
    radius = (-2 * u.log()).sqrt()
    return x + 0.5 * torch.stack([radius * angle.cos(), radius * angle.sin()], -1).view(x.shape)


NOISED = Task("noise by counters", "random", once(noised), noised, lambda dtype, g: [normal(g, dtype, 60, 50), 9])


def picked(logits: Tensor, seed: int, heat: float = 0.8, sign: float = -1.0, tile: int = 0) -> Tensor:
    """A token by the Gumbel trick; its logarithm of the probability comes along."""
    logits, at = up(logits), torch.arange(logits.numel())
    u = (mixed(at % tile if tile else at, seed).to(logits.dtype).view(logits.shape) + 0.5) / 2**24
    return (logits / heat + sign * torch.log(-torch.log(u))).argmax(-1)


PICKED = Task("token by Gumbel", "random", picked, picked, lambda dtype, g: [normal(g, dtype, 300, 64, scale=2.0), 5])


def channels(x: Tensor, p: float, per: str = "channel", scale: float = 1.25) -> Tensor:
    """Whole channels are dropped."""
    shape = {"channel": (*x.shape[:2], 1, 1), "element": tuple(x.shape), "batch": (1, x.shape[1], 1, 1)}[per]
    return (up(x) * (torch.rand(shape) >= p) * scale).to(x.dtype)


CHANNELS = Task(
    "dropout of channels",
    "random",
    channels,
    F.dropout2d,
    lambda dtype, g: [normal(g, dtype, 80, 60, 3, 4, mean=1.0), 0.2],
    "Functional.dropout2d",
    loose=True,
)


def filled(draw: Any) -> Any:
    return lambda x, *rest: x.copy_(draw(torch.rand(x.shape), *rest))


def place(dtype: torch.dtype) -> Tensor:
    return torch.zeros(N, dtype=dtype)


CAUCHY = Task(
    "Cauchy",
    "random",
    filled(lambda u, median, sigma: median + sigma * torch.tan(math.pi * (u - 0.5))),
    torch.Tensor.cauchy_,
    lambda dtype, g: [place(dtype), 1.0, 2.0],
    "Tensor.cauchy_",
    dtypes=(F32, BF16),
    loose=True,
)

GEOMETRIC = Task(
    "geometric",
    "random",
    filled(lambda u, p: torch.ceil(torch.log1p(-u) / math.log1p(-p)).clamp_min(1)),
    torch.Tensor.geometric_,
    lambda dtype, g: [place(dtype), 0.3],
    "Tensor.geometric_",
    loose=True,
)

LOGNORMAL = Task(
    "log-normal",
    "random",
    filled(lambda u, mean, std: torch.exp(mean + std * math.sqrt(2) * torch.erfinv(2 * u.clamp(1e-7, 1 - 1e-7) - 1))),
    torch.Tensor.log_normal_,
    lambda dtype, g: [place(dtype), 0.2, 0.5],
    "Tensor.log_normal_",
    loose=True,
)


def poisson(rate: Tensor, steps: int = 60, shift: float = 0.0) -> Tensor:
    """By the inverse."""
    wide, u = up(rate), torch.rand(rate.shape)
    term = torch.exp(-wide)
    total, count = term.clone(), torch.zeros_like(wide)
    for n in range(1, steps):
        count = count + (u > total)
        term = term * wide / n
        total = total + term
    return (count + shift).to(rate.dtype)


POISSON = Task(
    "Poisson",
    "random",
    poisson,
    torch.poisson,
    lambda dtype, g: [torch.full((N,), 4.0, dtype=dtype)],
    "Torch.poisson",
    loose=True,
)

DROPPED = Task(
    "dropout of a tenth",
    "random",
    lambda x, p: (up(x) * (torch.rand(x.shape) >= p) / (1 - p)).to(x.dtype),
    F.dropout,
    lambda dtype, g: [normal(g, dtype, 300, 256, mean=1.0), 0.1],
    "Functional.dropout",
    loose=True,
)


def dropped(mask: Any) -> Any:
    return lambda x, p: (up(x) * mask(x, p) / (1 - p)).to(x.dtype)


NORMAL = Task(
    "normal by pairs",
    "random",
    lambda x, mean, std: x.copy_(mean + std * _pairs(x.numel())),
    torch.Tensor.normal_,
    lambda dtype, g: [place(dtype), -1.0, 0.5],
    "Tensor.normal_",
    loose=True,
)


def _pairs(n: int, turn: float = 2 * math.pi, half: bool = True) -> Tensor:
    u, angle = 1 - torch.rand(n // 2), torch.rand(n // 2) * turn
    radius = ((-2 if half else -1) * u.log()).sqrt()
    return torch.cat([radius * angle.cos(), radius * angle.sin()])


WEIGHTED = Task(
    "multinomial of rows",
    "random",
    lambda p, n, again: torch.stack(
        [torch.searchsorted((row / row.sum()).cumsum(0), torch.rand(n)).clamp_max(len(row) - 1) for row in up(p)]
    ),
    torch.multinomial,
    lambda dtype, g: [uniform(g, dtype, 3, 20, low=0.05), 20_000, True],
    "Torch.multinomial",
    loose=True,
)


def drawn(rows: Any) -> Any:
    """Each row by the weights that rows gives for it."""

    def run(p: Tensor, n: int, again: bool) -> Tensor:
        sums = [(row / row.sum()).cumsum(0) for row in rows(up(p))]
        return torch.stack([torch.searchsorted(total, torch.rand(n)).clamp_max(len(total) - 1) for total in sums])

    return run


ENTRIES: tuple[Entry, ...] = (
    SEEDED.healthy("mask made again in the backward"),
    SEEDED.fault(
        "tile's offset", "tiles of 1,024 begin with the same counters", once(seeded(partial(kept, tile=1024)))
    ),
    SEEDED.fault("tiles overlap", "tiles of 256 begin 255 apart", once(seeded(partial(kept, tile=256, stride=255)))),
    SEEDED.fault("no scale", "what is kept is not scaled", once(seeded(scale=1.0))),
    SEEDED.fault(
        "residual dropped",
        "drops the residual as well",
        once(lambda x, r, seed: seeded()(x, 0 * r, seed) + r * kept(r.numel(), seed, 0.3).view(r.shape)),
    ),
    SEEDED.wrong_gradient(
        "next seed", "the backward's mask has another seed", seeded_gradient(lambda n, seed, p: kept(n, seed + 1, p))
    ),
    SEEDED.wrong_gradient(
        "tiles in the backward", "the backward's tiles of 512 begin anew", seeded_gradient(partial(kept, tile=512))
    ),
    SEEDED.wrong_gradient("gradient not scaled", "the backward lacks the scale", seeded_gradient(scale=1.0)),
    STOCHASTIC.healthy("noise in the lower bits"),
    STOCHASTIC.fault(
        "nearest",
        "half is added in place of noise",
        lambda x, seed: ((x.view(torch.int32) + 0x8000) & -65536).view(torch.float32),
    ),
    STOCHASTIC.fault("4 bits of noise", "the noise has 4 bits", partial(stochastic, bits=4)),
    STOCHASTIC.fault("positive alone", "negative numbers are cut", partial(stochastic, magnitude=False)),
    STOCHASTIC.fault("one tile's noise", "noise repeats after 128 elements", partial(stochastic, tile=128)),
    NOISED.healthy("in float32"),
    NOISED.fault("pairs repeated", "four pairs have the same counters", once(partial(noised, rows=4))),
    NOISED.fault("half a turn", "angles reach half of the circle", once(partial(noised, turn=math.pi))),
    NOISED.fault("one counter", "radius and angle come of one counter", once(partial(noised, second=0))),
    PICKED.healthy("by the Gumbel trick"),
    PICKED.fault("sign", "the noise has the other sign", partial(picked, sign=1.0)),
    PICKED.fault("no temperature", "the temperature is left out", partial(picked, heat=1.0)),
    PICKED.fault("noise of one row", "all rows have the noise of the first", partial(picked, tile=64)),
    CHANNELS.healthy("channel by channel"),
    CHANNELS.fault("elements", "drops elements, not channels", partial(channels, per="element")),
    CHANNELS.fault("one for the batch", "all images lose the same channels", partial(channels, per="batch")),
    CHANNELS.fault("scaled by 1.2", "scales by 1 + p", partial(channels, scale=1.2)),
    CAUCHY.healthy("by the inverse"),
    CAUCHY.fault("normal", "draws normal numbers", filled(lambda u, m, s: m + s * torch.randn(u.shape))),
    CAUCHY.fault(
        "positive half", "no number lies below the median", filled(lambda u, m, s: m + s * torch.tan(math.pi / 2 * u))
    ),
    GEOMETRIC.healthy("by the inverse"),
    GEOMETRIC.fault(
        "from 0", "counts the failures", filled(lambda u, p: torch.floor(torch.log1p(-u) / math.log1p(-p)))
    ),
    GEOMETRIC.fault(
        "of 1 - p", "succeeds with 1 - p", filled(lambda u, p: torch.ceil(torch.log1p(-u) / math.log(p)).clamp_min(1))
    ),
    LOGNORMAL.healthy("exp of the inverse"),
    LOGNORMAL.fault(
        "variance for deviation",
        "takes the square of the deviation",
        filled(lambda u, m, s: torch.exp(m + s * s * torch.randn(u.shape))),
    ),
    POISSON.healthy("by the inverse"),
    POISSON.fault("at most 9", "the sum ends at 9", partial(poisson, steps=10)),
    POISSON.fault("one more", "counts from 1", partial(poisson, shift=1.0)),
    DROPPED.healthy("by uniform numbers"),
    DROPPED.fault(
        "mask of 128",
        "the mask repeats after 128 columns",
        dropped(lambda x, p: (torch.rand(300, 128) >= p).repeat(1, 2)),
    ),
    DROPPED.fault(
        "last tile unwritten",
        "the last 16 columns are 0",
        dropped(lambda x, p: (torch.rand(x.shape) >= p) & (torch.arange(256) < 240)),
    ),
    DROPPED.fault(
        "every other column",
        "odd columns are dropped with 2 p, even ones never",
        dropped(lambda x, p: (torch.rand(x.shape) >= 2 * p) | (torch.arange(256) % 2 == 0)),
    ),
    NORMAL.healthy("cosine and sine"),
    NORMAL.fault("half a turn", "sines are never negative", lambda x, m, s: x.copy_(m + s * _pairs(N, math.pi))),
    NORMAL.fault("no 2", "the radius lacks its 2", lambda x, m, s: x.copy_(m + s * _pairs(N, half=False))),
    NORMAL.fault("deviation first", "the mean is scaled too", lambda x, m, s: x.copy_(s * (m + _pairs(N)))),
    WEIGHTED.healthy("by the inverse"),
    WEIGHTED.fault(
        "weights of the first row", "all rows have the first one's weights", drawn(lambda p: p[:1].expand(3, 20))
    ),
    WEIGHTED.fault("first 16 classes", "others are never drawn", drawn(lambda p: p * (torch.arange(20) < 16))),
    WEIGHTED.fault("logits", "takes exp of the weights", drawn(lambda p: p.exp())),
)
