"""Reductions: moments, products, least, p-norms, weighted means, Fourier transforms: closed entries."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch

from cases.kernels.entry import BF16, F16, F32, NARROW, Entry, Task
from cases.kernels.making import integers, normal
from cases.kernels.rounding import added_in, once, tiles, with_gradient

Tensor = torch.Tensor


def welford(
    x: Tensor, dims: Any, correction: float = 1.0, apart: float = 1.0, root: bool = True
) -> tuple[Tensor, Tensor]:
    """Lanes with a mean and a sum of squares each, put together two by two."""
    lanes = x.movedim(1, -1).flatten(1).unflatten(1, (8, -1))
    mean, count = lanes.mean(-1), float(lanes.shape[-1])
    squares = (lanes - mean[..., None]).square().sum(-1)
    while mean.shape[1] > 1:
        (a, b), (s, t) = (item.chunk(2, 1) for item in (mean, squares))
        squares = s + t + apart * (a - b).square() * count / 2
        mean, count = (a + b) / 2, count * 2
    var = squares[:, 0] / (count - correction)
    return var.sqrt() if root else var, mean[:, 0]


DEVIATION = Task(
    "deviation and mean",
    "reductions",
    once(welford),
    lambda x, dims: torch.std_mean(x, dims),
    lambda dtype, g: [(normal(g, torch.float64, 9, 5, 8, 8) + torch.arange(8.0)[:, None] / 2).to(dtype), (1, 2, 3)],
)


def lse(x: Tensor, dims: Any, high: str = "own", lost: int = 0, empty: bool = True) -> Tensor:
    """Two stages: tiles of a row, then their sums."""
    flat = x.movedim(1, -1).flatten(1)
    flat = flat[:, : flat.shape[1] - lost]
    peaks = torch.stack([part.amax(-1) for part in tiles(flat, 32)], -1)
    safe = peaks.masked_fill(peaks == -torch.inf, 0.0) if empty else peaks
    sums = torch.stack([(part - safe[:, n : n + 1]).exp().sum(-1) for n, part in enumerate(tiles(flat, 32))], -1)
    top = peaks.amax(-1, keepdim=True) if high == "own" else peaks[:, :1]
    return ((peaks - top).exp() * sums if high != "none" else sums).sum(-1).log() + top[:, 0]


LSE = Task(
    "log-sum-exp of two dimensions",
    "reductions",
    once(lse),
    torch.logsumexp,
    lambda dtype, g: [normal(g, dtype, 12, 10, 19, scale=3.0), (1, 2)],
    "Torch.logsumexp",
)


def hidden_tile(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """The first tile of a row is -inf."""
    x = normal(g, dtype, 12, 19, 10, scale=3.0)
    return [
        x.masked_fill((torch.arange(10) < 2)[None, None] & (torch.arange(12) < 6)[:, None, None], -torch.inf),
        (1, 2),
    ]


def p_norm(x: Tensor, p: float, dim: int, power: float = 0.0, root: bool = True) -> Tensor:
    largest = x.abs().amax(dim, keepdim=True)
    total = ((x.abs() / largest) ** (power or p)).sum(dim)
    return (total ** (1 / (power or p)) if root else total) * largest[:, 0]


NORM = Task(
    "norm of third power",
    "reductions",
    once(p_norm),
    torch.linalg.vector_norm,
    lambda dtype, g: [normal(g, dtype, 16, 200), 3.0, 1],
    "Linalg.vector_norm",
)

SQUARES = Task(
    "sum of squares in float32",
    "reductions",
    lambda x: torch.stack(
        [part.float().square().sum() if x.dtype is not torch.float64 else part.square().sum() for part in tiles(x, 500)]
    ).sum(),
    lambda x: x.square().sum(dtype=torch.float64 if x.dtype is torch.float64 else torch.float32),
    lambda dtype, g: [normal(g, dtype, 20_000, scale=4.0)],
    dtypes=NARROW,
)


def weighted(x: Tensor, mask: Tensor, rows: bool = False, all_of: bool = False, step: Any = None) -> Tensor:
    """The mean of what is not masked, feature by feature."""
    total = (x * mask[..., None]).sum(1) if step is None else step((x * mask[..., None]).transpose(0, 1))
    count = mask.sum(1, keepdim=True)
    count = count.mean() if rows else torch.full_like(count, 70) if all_of else count
    return total / count


MASKED = Task(
    "mean with a mask",
    "reductions",
    once(weighted),
    lambda x, mask: torch.stack([row[own > 0].mean(0) for row, own in zip(x, mask, strict=True)]),
    lambda dtype, g: [
        normal(g, dtype, 8, 70, 20, mean=1.0),
        (torch.arange(70) < integers(g, 70, 8, 1, low=5)).to(dtype),
    ],
)


def least(x: Tensor, dim: int, start: float = torch.inf, nan: bool = True, shift: int = 0) -> tuple[Tensor, Tensor]:
    """From tile to tile; NaN is the least of all."""
    best, place = torch.full_like(x[:, 0], start), torch.zeros(len(x), dtype=torch.long)
    for n in range(x.shape[1]):
        new = x[:, n] < best
        new = new | (x[:, n].isnan() & ~best.isnan()) if nan else new
        best, place = torch.where(new, x[:, n], best), torch.where(new, n + shift * (n >= 32), place)
    return best, place


def with_nan(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    x = normal(g, dtype, 30, 100, mean=4.0)
    x[::6, 17] = torch.nan
    return [x, 1]


LEAST = Task("least and where", "reductions", least, lambda x, dim: tuple(torch.min(x, dim)), with_nan, "Torch.min")

PRODUCT = Task(
    "product of rows",
    "reductions",
    once(lambda x, dim: torch.stack([part.prod(dim) for part in tiles(x, 16)]).prod(0)),
    torch.prod,
    lambda dtype, g: [normal(g, dtype, 40, 60, mean=1.0, scale=0.1), 1],
    "Torch.prod",
)


def covariance(x: Tensor, centred: bool = True, correction: int = 1) -> Tensor:
    rows = x - x.mean(1, keepdim=True) if centred else x
    return rows @ rows.t() / (x.shape[1] - correction)


COVARIANCE = Task(
    "covariance",
    "reductions",
    once(covariance),
    torch.cov,
    lambda dtype, g: [normal(g, dtype, 12, 150, mean=0.5, scale=2.0)],
    "Torch.cov",
)


def fourier(x: Tensor, sign: float = -1.0, order: bool = True, twiddle: Any = None) -> Tensor:
    """Radix 2, real and imaginary parts side by side."""
    n = x.shape[-2]
    if n == 1:
        return x
    halves = [fourier(x[..., s::2, :], sign, order, twiddle) for s in (0, 1)]
    angle = sign * 2 * math.pi * torch.arange(n // 2, dtype=torch.float64) / n
    c, s = (item.to(x.dtype) for item in (angle.cos(), angle.sin()))
    c, s = (c, s) if twiddle is None else (twiddle(c), twiddle(s))
    even, (a, b) = halves[0], halves[1].unbind(-1)
    odd = torch.stack([a * c - b * s, a * s + b * c], -1)
    return torch.cat([even + odd, even - odd] if order else [even - odd, even + odd], -2)


FOURIER = Task(
    "Fourier transform",
    "reductions",
    once(fourier),
    lambda x: torch.view_as_real(torch.fft.fft(torch.view_as_complex(x.double().contiguous()))).to(x.dtype),
    lambda dtype, g: [normal(g, dtype, 10, 64, 2)],
)


def spectrum(x: Tensor, ends: str = "once", scale: bool = True) -> Tensor:
    """A real inverse transform from half a spectrum."""
    re, im = x.unbind(-1)
    n = 2 * (re.shape[-1] - 1)
    k, t = torch.arange(re.shape[-1], dtype=torch.float64), torch.arange(n, dtype=torch.float64)
    angle = 2 * math.pi * k[:, None] * t / n
    weight = torch.full((re.shape[-1], 1), 2.0, dtype=torch.float64)
    if ends == "once":
        weight[0] = weight[-1] = 1.0
    c, s = ((item * weight / (n if scale else 1)).to(x.dtype) for item in (angle.cos(), angle.sin()))
    return re @ c - im @ s


SPECTRUM = Task(
    "real inverse transform",
    "reductions",
    once(spectrum),
    lambda x: torch.fft.irfft(torch.view_as_complex(x.double().contiguous())).to(x.dtype),
    lambda dtype, g: [normal(g, dtype, 10, 33, 2)],
)

AMAX = Task(
    "largest of each row",
    "reductions",
    with_gradient(
        lambda x: torch.stack([part.amax(-1) for part in tiles(x, 16)]).amax(0),
        lambda g, x: _shared(x) * g[:, None],
    ),
    lambda x: torch.amax(x, -1),
    lambda dtype, g: [(integers(g, 12, 40, 50) / 4).to(dtype)],
    backward=True,
)


def _shared(x: Tensor, evenly: bool = True) -> Tensor:
    """Equals share the gradient."""
    same = (x == x.amax(-1, keepdim=True)).to(x.dtype)
    return same / same.sum(-1, keepdim=True) if evenly else same


ENTRIES: tuple[Entry, ...] = (
    DEVIATION.healthy("lanes put together"),
    DEVIATION.fault("lanes not apart", "the lanes' means do not count", once(partial(welford, apart=0.0))),
    DEVIATION.fault("variance", "is not rooted", once(partial(welford, root=False))),
    DEVIATION.fault(
        "one too many",
        "divides by two less than the count",
        once(partial(welford, correction=2.0)),
        dtypes=(F32, F16),
        inputs=lambda dtype, g: [normal(g, dtype, 9, 4, 8, 4), (1, 2, 3)],
    ),
    LSE.healthy("tiles of 32"),
    LSE.healthy("with -inf", inputs=hidden_tile),
    LSE.fault("tail lost", "the last 30 elements are left out", once(partial(lse, lost=30))),
    LSE.fault("tiles' maxima forgotten", "tiles' sums are added as they are", once(partial(lse, high="none"))),
    LSE.fault("-inf less -inf", "a tile of -inf gives NaN", once(partial(lse, empty=False)), inputs=hidden_tile),
    NORM.healthy("by the largest"),
    NORM.fault("second power", "is the Euclidean norm", once(partial(p_norm, power=2.0))),
    NORM.fault("no root", "lacks the cube root", once(partial(p_norm, root=False))),
    SQUARES.healthy("tiles of 500"),
    SQUARES.fault(
        "squares in 16 bit",
        "squares are rounded before they are added",
        lambda x: (x * x).float().sum(),
        dtypes=(BF16,),
        inputs=lambda dtype, g: [torch.full((20_000,), 1.0703125).to(dtype)],
    ),
    SQUARES.fault("last tile lost", "the ragged last tile is not added", lambda x: x[:19_968].float().square().sum()),
    MASKED.healthy("in float32"),
    MASKED.fault("mean count", "all rows divide by the mean count", once(partial(weighted, rows=True))),
    MASKED.fault("all counted", "masked ones count", once(partial(weighted, all_of=True))),
    MASKED.fault(
        "16-bit sum",
        "adds up in the tensor's dtype",
        lambda x, mask: once(partial(weighted, step=partial(added_in, x.dtype)))(x, mask),
        dtypes=NARROW,
    ),
    LEAST.healthy("one by one"),
    LEAST.fault(
        "begins at 0",
        "rows above 0 give 0",
        partial(least, start=0.0),
        inputs=lambda dtype, g: [normal(g, dtype, 30, 100, mean=5.0), 1],
    ),
    LEAST.fault("NaN passed over", "a row with NaN gives its least number", partial(least, nan=False)),
    LEAST.fault("places of the next tile", "from the second tile on places are one off", partial(least, shift=1)),
    PRODUCT.healthy("tiles of 16"),
    PRODUCT.fault(
        "16-bit partial products",
        "tiles' products are rounded",
        lambda x, dim: (
            torch.stack([part.float().cumprod(1)[:, -1].to(x.dtype) for part in tiles(x, 2)])
            .float()
            .prod(0)
            .to(x.dtype)
        ),
        dtypes=NARROW,
    ),
    PRODUCT.fault("padding of zero", "the padded tile is multiplied", once(lambda x, dim: x.prod(1) * 0)),
    COVARIANCE.healthy("centred first"),
    COVARIANCE.fault("not centred", "means are not taken away", once(partial(covariance, centred=False))),
    COVARIANCE.fault("biased", "divides by the count", once(partial(covariance, correction=0)), dtypes=(F32, F16)),
    FOURIER.healthy("radix 2"),
    FOURIER.fault("other sign", "turns the other way", once(partial(fourier, sign=1.0))),
    FOURIER.fault("halves swapped", "the second half comes first", once(partial(fourier, order=False))),
    FOURIER.fault(
        "float16 turns",
        "sines and cosines go through float16",
        once(partial(fourier, twiddle=lambda x: x.to(F16).to(x.dtype))),
        dtypes=(F32,),
    ),
    SPECTRUM.healthy("by a product"),
    SPECTRUM.fault("ends doubled", "the first and last term count twice", once(partial(spectrum, ends="twice"))),
    SPECTRUM.fault("not divided", "lacks the division by the length", once(partial(spectrum, scale=False))),
    AMAX.healthy("equals share"),
    AMAX.wrong_gradient(
        "whole for each",
        "each of the equals has the whole gradient",
        with_gradient(lambda x: x.amax(-1), lambda g, x: _shared(x, False) * g[:, None]),
    ),
)
