"""Softmax: over channels, of masked and scaled scores, with a one more in the sum, with temperature: closed entries."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from cases.kernels.entry import F32, NARROW, Entry, Task
from cases.kernels.making import normal
from cases.kernels.rounding import cut, once, stepwise, tiles, with_gradient

Tensor = torch.Tensor
SPATIAL = "log-softmax over channels"


def by_channels(x: Tensor, dim: int, sums: Any = None, channels: int = 21) -> Tensor:
    """Two passes: a running maximum and sum over tiles of channels, then the output."""
    high, total = torch.full_like(x[:, :1], -torch.inf), torch.zeros_like(x[:, :1])
    for part in tiles(x[:, :channels], 4, 1):
        higher = torch.maximum(high, part.amax(1, keepdim=True))
        total = total * torch.exp(high - higher) + torch.exp(part - higher).sum(1, keepdim=True)
        total, high = total if sums is None else sums(total), higher
    return x - high - total.log()


CHANNELS = Task(
    SPATIAL,
    "softmax",
    once(by_channels),
    F.log_softmax,
    lambda dtype, g: [normal(g, dtype, 2, 21, 12, 10, scale=3.0), 1],
    "Functional.log_softmax",
    backward=True,
)


def channel_gradient(sums: Any) -> Any:
    return with_gradient(by_channels, lambda g, x, dim: (g - torch.softmax(x, dim) * sums(g), None))


def scores(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    return [normal(g, dtype, 4, 50, 50, scale=8.0)]


FUTURE = torch.ones(50, 50).triu(1) > 0


def triangular(scale: float = 0.25, hidden: Tensor = FUTURE, low: float = -torch.inf) -> Any:
    return lambda x: torch.softmax((x * scale).masked_fill(hidden, low), -1)


def triangular_gradient(scale: float, rounded: Any = None) -> Any:
    def gradient(g: Tensor, x: Tensor) -> Tensor:
        p = triangular()(x)
        p = p if rounded is None else rounded(p)
        return scale * p * (g - (g * p).sum(-1, keepdim=True))

    return with_gradient(triangular(), gradient)


TRIANGULAR = Task("causal scaled softmax", "softmax", once(triangular()), triangular(), scores, backward=True)


def ragged(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """Rows of unlike length, one of them empty; what lies beyond is not to be read."""
    lengths = torch.tensor([70, 1, 33, 0, 64, 65])
    x = normal(g, dtype, 6, 70, scale=4.0)
    return [x.masked_fill(torch.arange(70) >= lengths[:, None], 60.0), lengths]


def by_length(more: int = 0, empty: float = 0.0, outside: float = 0.0) -> Any:
    def run(x: Tensor, lengths: Tensor) -> Tensor:
        gone = torch.arange(70) >= (lengths + more)[:, None]
        kept = x.masked_fill(gone, -torch.inf)
        high = kept.amax(-1, keepdim=True)
        e = torch.exp(kept - high.masked_fill(high == -torch.inf, 0.0))
        total = e.sum(-1, keepdim=True)
        y = torch.where(total > 0, e / total, torch.full_like(e, empty))
        return y.masked_fill(gone & (lengths > 0)[:, None], outside)

    return run


def by_length_reference(x: Tensor, lengths: Tensor) -> Tensor:
    rows = [F.pad(torch.softmax(row[:n], -1), (0, 70 - n)) for row, n in zip(x, lengths.tolist(), strict=True)]
    return torch.stack(rows)


RAGGED = Task("softmax of ragged rows", "softmax", once(by_length()), by_length_reference, ragged)


def one_more(extra: float = 1.0, shifted: bool = True) -> Any:
    """exp(x) over 1 + sum(exp(x))."""

    def run(x: Tensor) -> Tensor:
        high = x.amax(-1, keepdim=True).clamp_min(0.0) if shifted else x.amax(-1, keepdim=True)
        e = torch.exp(x - high)
        return e / (e.sum(-1, keepdim=True) + extra * (torch.exp(-high) if shifted else 1.0))

    return run


ONE_MORE = Task(
    "softmax with one more in the sum",
    "softmax",
    once(one_more()),
    lambda x: torch.softmax(F.pad(x, (0, 1)), -1)[..., :-1],
    lambda dtype, g: [normal(g, dtype, 40, 90, scale=2.0, mean=-3.0)],
    backward=True,
)


def exp2(x: Tensor, degree: int = 7) -> Tensor:
    """2^x by its whole part and a polynomial of the rest."""
    whole = torch.round(x)
    rest = (x - whole) * math.log(2.0)
    total = torch.ones_like(x) / math.factorial(degree)
    for n in range(degree - 1, -1, -1):
        total = total * rest + 1 / math.factorial(n)
    return torch.ldexp(total, whole.clamp(-140, 140).to(torch.int32))


def warm(heat: float = 0.7, exp: Any = torch.exp) -> Any:
    def run(x: Tensor) -> Tensor:
        e = exp((x - x.amax(-1, keepdim=True)) / heat)
        return e / e.sum(-1, keepdim=True)

    return run


def cut_reciprocal(x: Tensor) -> Tensor:
    e = torch.exp((x - x.amax(-1, keepdim=True)) / 0.7)
    return e * cut(1 / e.sum(-1, keepdim=True), 11)


def based(degree: int) -> Any:
    return lambda x: exp2(x * math.log2(math.e), degree)


WARM = Task(
    "softmax with temperature",
    "softmax",
    once(warm()),
    lambda x: torch.softmax(x / 0.7, -1),
    lambda dtype, g: [normal(g, dtype, 12, 1100, scale=3.0)],
    backward=True,
)

MINIMUM = Task(
    "softmin",
    "softmax",
    once(lambda x, dim: torch.exp(-x - torch.logsumexp(-x, dim, keepdim=True))),
    F.softmin,
    lambda dtype, g: [normal(g, dtype, 30, 40, 3, scale=2.0), 1],
    "Functional.softmin",
    backward=True,
)

ENTRIES: tuple[Entry, ...] = (
    CHANNELS.healthy("tiles of channels"),
    CHANNELS.healthy("own backward", channel_gradient(lambda g: g.sum(1, keepdim=True))),
    CHANNELS.fault(
        "last channel lost", "the sum lacks the last channel", once(lambda x, d: by_channels(x, d, None, 20))
    ),
    CHANNELS.fault("over the columns", "sums over the image's columns", once(lambda x, d: F.log_softmax(x, 3))),
    CHANNELS.fault(
        "16-bit running sum",
        "the running sum is rounded to the dtype at each tile",
        lambda x, d: once(lambda y, e: by_channels(y, e, stepwise(x.dtype)))(x, d),
        dtypes=NARROW,
        inputs=lambda dtype, g: [normal(g, dtype, 2, 21, 12, 10, scale=4.0), 1],
    ),
    CHANNELS.wrong_gradient(
        "sum over the columns",
        "the backward sums the incoming gradient over columns",
        channel_gradient(lambda g: g.sum(3, keepdim=True)),
    ),
    CHANNELS.wrong_gradient(
        "sum without the last tile",
        "the backward sums 20 of 21 channels",
        channel_gradient(lambda g: g[:, :20].sum(1, keepdim=True)),
    ),
    TRIANGULAR.healthy("fused"),
    TRIANGULAR.healthy("own backward", triangular_gradient(0.25)),
    TRIANGULAR.fault(
        "scale twice",
        "scales before and in the softmax",
        once(triangular(0.0625)),
    ),
    TRIANGULAR.fault(
        "last row sees nothing new",
        "a ragged last tile hides the last key from its own query",
        once(triangular(hidden=FUTURE | (torch.arange(2500).view(50, 50) == 2499))),
    ),
    TRIANGULAR.fault(
        "hidden of another tile",
        "rows from 32 on hide one key too few",
        once(triangular(hidden=torch.where(torch.arange(50)[:, None] < 32, FUTURE, FUTURE.roll(1, 1) & FUTURE))),
    ),
    TRIANGULAR.fault("zero as the mask", "hidden scores are 0", once(triangular(low=0.0))),
    TRIANGULAR.wrong_gradient("gradient not scaled", "the backward lacks the scale", triangular_gradient(1.0)),
    TRIANGULAR.wrong_gradient("scaled twice", "the backward scales twice", triangular_gradient(0.0625)),
    RAGGED.healthy("lengths"),
    RAGGED.fault("one beyond", "one element beyond the length takes part", once(by_length(1))),
    RAGGED.fault("empty row of NaN", "a row without elements is 0 / 0", once(by_length(empty=torch.nan))),
    RAGGED.fault("empty row even", "a row without elements is even", once(by_length(empty=1 / 70))),
    RAGGED.fault("tail unwritten", "what lies beyond the length is left as it was", once(by_length(outside=0.25))),
    ONE_MORE.healthy("with the maximum"),
    ONE_MORE.fault("not shifted", "adds 1 beside shifted terms", once(one_more(shifted=False))),
    ONE_MORE.fault("plain", "is a plain softmax", once(one_more(0.0))),
    WARM.healthy("in float32"),
    WARM.healthy("2^x by a polynomial", once(warm(exp=based(7))), close=1e-6, backward=False),
    WARM.fault("short polynomial", "2^x by a polynomial of degree 3", once(warm(exp=based(3))), dtypes=(F32,)),
    WARM.fault("multiplied", "multiplies by the temperature", once(lambda x: torch.softmax(x * 0.7, -1))),
    WARM.fault("after the softmax", "divides the probabilities", once(lambda x: torch.softmax(x, -1) / 0.7)),
    WARM.fault(
        "first 1,024",
        "the maximum and the sum are those of the first 1,024",
        once(
            lambda x: (
                torch.exp((x - x[:, :1024].amax(-1, keepdim=True)) / 0.7)
                / torch.exp((x[:, :1024] - x[:, :1024].amax(-1, keepdim=True)) / 0.7).sum(-1, keepdim=True)
            )
        ),
    ),
    WARM.fault(
        "reciprocal of 11 bits",
        "divides by a sum's reciprocal of 11 bits",
        once(cut_reciprocal),
        dtypes=(F32,),
    ),
    MINIMUM.healthy("by log-sum-exp"),
    MINIMUM.fault("softmax", "does not turn the sign", once(lambda x, d: torch.softmax(x, d))),
    MINIMUM.fault("last dimension", "goes over the last dimension", once(lambda x, d: torch.softmax(-x, -1))),
    MINIMUM.wrong_gradient(
        "gradient's sign",
        "the backward does not turn the sign",
        once(lambda x, d: torch.softmax(x - 2 * x.detach(), d)),
    ),
)
