"""Pooling and resampling: counted padding, adaptive, strided maxima, bilinear, bicubic, grids: closed entries."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from cases.kernels.entry import Entry, Task
from cases.kernels.making import normal, uniform
from cases.kernels.rounding import once, with_gradient

Tensor = torch.Tensor


def average(count: str = "given", over: bool = False) -> Any:
    """Windows of 3 by 2 every 2; ceil: the last window may hang over."""

    def run(x: Tensor, size: Any, stride: int, pad: Any, ceil: bool, include: bool) -> Tensor:
        sums = F.pad(x, (1, 2, 1, 2)).unfold(2, 3, 2).unfold(3, 2, 2).sum((-1, -2))[:, :, :6, :5]
        ones = F.pad(torch.ones(1, 1, 10, 9, dtype=x.dtype), (1, 2, 1, 2))
        inside = F.pad(torch.ones(1, 1, 12, 11, dtype=x.dtype), (0, 1, 0, 1))
        own = {"given": inside if include else ones, "all": ones * 0 + 1, "valid": ones, "padded": inside}[count]
        return sums / own.unfold(2, 3, 2).unfold(3, 2, 2).sum((-1, -2))[:, :, :6, :5]

    return run


def average_inputs(include: bool) -> Any:
    return lambda dtype, g: [normal(g, dtype, 2, 3, 10, 9, mean=1.0), (3, 2), 2, (1, 1), True, include]


COUNTED = Task(
    "average with counted padding",
    "convolution",
    once(average()),
    F.avg_pool2d,
    average_inputs(True),
    "Functional.avg_pool2d",
    backward=True,
)
VALID = Task(
    "average without padding",
    "convolution",
    once(average()),
    F.avg_pool2d,
    average_inputs(False),
    "Functional.avg_pool2d",
    backward=True,
)


def adaptive(x: Tensor, size: int, ends: str = "up") -> Tensor:
    """Windows from floor(i n / size) to ceil((i + 1) n / size)."""
    n = x.shape[-1]
    outs = []
    for i in range(size):
        start, stop = i * n // size, -(-(i + 1) * n // size) if ends == "up" else (i + 1) * n // size
        outs.append(x[..., start:stop].sum(-1) / (stop - start if ends != "even" else -(-n // size)))
    return torch.stack(outs, -1)


ADAPTIVE = Task(
    "adaptive average",
    "convolution",
    once(adaptive),
    F.adaptive_avg_pool1d,
    lambda dtype, g: [normal(g, dtype, 4, 6, 37, mean=0.5), 8],
    "Functional.adaptive_avg_pool1d",
    backward=True,
)


def maxima(x: Tensor, low: float = -torch.inf, stride: int = 2, late: int = 0) -> Tensor:
    padded = F.pad(x, (1 + late, 1 - late, 1, 1), value=low)
    return padded.unfold(2, 3, stride).unfold(3, 3, stride).flatten(-2).amax(-1)


MAXIMA = Task(
    "maxima",
    "convolution",
    once(maxima),
    lambda x: F.max_pool2d(x, 3, 2, 1),
    lambda dtype, g: [normal(g, dtype, 2, 3, 15, 17, mean=-2.0)],
)


def spread(first: bool) -> Any:
    """The gradient of a window goes to its largest; or to all that are as large."""

    def forward(x: Tensor) -> Tensor:
        return x.unfold(-1, 4, 4).amax(-1)

    def backward(g: Tensor, x: Tensor) -> Tensor:
        windows = x.unfold(-1, 4, 4)
        place = windows.argmax(-1, keepdim=True)
        out = torch.zeros_like(windows)
        return (out.scatter(-1, place, g[..., None]) if first else out + g[..., None] / 4).flatten(-2)

    return with_gradient(forward, backward)


WINDOWS = Task(
    "maxima of four",
    "convolution",
    spread(True),
    lambda x: F.max_pool1d(x, 4),
    lambda dtype, g: [normal(g, dtype, 20, 3, 64)],
    backward=True,
)


def cubic(t: Tensor, a: float) -> Tensor:
    t = t.abs()
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return torch.where(t <= 1, near, torch.where(t < 2, far, 0.0))


def bicubic(x: Tensor, size: Any, a: float = -0.75, centre: bool = True, border: str = "edge") -> Tensor:
    """Both axes by a matrix of weights."""
    for dim, new in ((2, size[0]), (3, size[1])):
        old = x.shape[dim]
        at = torch.arange(new, dtype=torch.float64)
        at = (at + 0.5) * old / new - 0.5 if centre else at * old / new
        weights = torch.zeros(new, old, dtype=torch.float64)
        for tap in range(-1, 3):
            where = at.floor() + tap
            own = cubic(at - where, a)
            own = own if border == "edge" else own.masked_fill((where < 0) | (where >= old), 0.0)
            weights.scatter_add_(1, where.clamp(0, old - 1).long()[:, None], own[:, None])
        x = (x.movedim(dim, -1) @ weights.t().to(x.dtype)).movedim(-1, dim)
    return x


BICUBIC = Task(
    "bicubic",
    "convolution",
    once(bicubic),
    lambda x, size: F.interpolate(x, size, mode="bicubic"),
    lambda dtype, g: [normal(g, dtype, 2, 2, 9, 8), (14, 19)],
    backward=True,
)


def shrunk(x: Tensor, antialias: bool = True) -> Tensor:
    """By 4, with triangles as wide as the new pixels."""
    at = (torch.arange(8, dtype=torch.float64) + 0.5) * 4 - 0.5
    width = 4.0 if antialias else 1.0
    weights = (1 - (torch.arange(32, dtype=torch.float64) - at[:, None]).abs() / width).clamp_min(0)
    weights = (weights / weights.sum(1, keepdim=True)).to(x.dtype)
    return weights @ x @ weights.t()


SHRUNK = Task(
    "shrunk without aliases",
    "convolution",
    once(shrunk),
    lambda x: F.interpolate(x, (8, 8), mode="bilinear", antialias=True),
    lambda dtype, g: [normal(g, dtype, 2, 3, 32, 32)],
)


def sampled(x: Tensor, grid: Tensor, corners: bool = False, outside: float = 0.0, turned: bool = False) -> Tensor:
    """Bilinear at places from -1 to 1; zeros outside."""
    n, c, h, w = x.shape
    gx, gy = grid.unbind(-1)[::-1] if turned else grid.unbind(-1)
    px, py = (
        ((gx + 1) / 2 * (w - 1), (gy + 1) / 2 * (h - 1))
        if corners
        else ((gx + 1) * w / 2 - 0.5, (gy + 1) * h / 2 - 0.5)
    )
    total = torch.zeros(n, c, *gx.shape[1:], dtype=x.dtype)
    for dy in (0, 1):
        for dx in (0, 1):
            ix, iy = px.floor() + dx, py.floor() + dy
            weight = (1 - (px - ix).abs()) * (1 - (py - iy).abs())
            inside = (ix >= 0) & (ix < w) & (iy >= 0) & (iy < h)
            place = (iy.clamp(0, h - 1) * w + ix.clamp(0, w - 1)).long()
            seen = torch.stack([image.flatten(1)[:, at] for image, at in zip(x, place, strict=True)])
            total = total + seen * (weight * torch.where(inside, 1.0, outside))[:, None]
    return total


SAMPLED = Task(
    "places of a grid",
    "convolution",
    once(sampled),
    lambda x, grid: F.grid_sample(x, grid, align_corners=False),
    lambda dtype, g: [normal(g, dtype, 2, 3, 8, 12), uniform(g, dtype, 2, 9, 7, 2, low=-1.2, high=1.2)],
)

ENTRIES: tuple[Entry, ...] = (
    COUNTED.healthy("sums by count"),
    COUNTED.fault("overhang counted", "what hangs over beyond the padding is counted", once(average("all"))),
    COUNTED.fault("padding not counted", "divides by the valid ones", once(average("valid"))),
    VALID.healthy("sums by count"),
    VALID.fault("padding counted", "divides by the padded ones too", once(average("padded"))),
    ADAPTIVE.healthy("window by window"),
    ADAPTIVE.fault("ends rounded down", "windows end at the next one's start", once(partial(adaptive, ends="down"))),
    ADAPTIVE.fault(
        "one count for all",
        "all windows divide by 5",
        once(partial(adaptive, ends="even")),
        inputs=lambda dtype, g: [normal(g, dtype, 4, 6, 33, mean=0.5), 8],
    ),
    MAXIMA.healthy("windows"),
    MAXIMA.fault("padding of zero", "padded zeros take part", once(partial(maxima, low=0.0))),
    MAXIMA.fault("one column late", "windows begin one column early", once(partial(maxima, late=1))),
    WINDOWS.healthy("own backward"),
    WINDOWS.wrong_gradient("gradient for all", "the whole window shares the gradient", spread(False)),
    BICUBIC.healthy("by matrices"),
    BICUBIC.fault("a of -1/2", "another cubic", once(partial(bicubic, a=-0.5))),
    BICUBIC.fault("corner of the pixel", "places are the pixels' corners", once(partial(bicubic, centre=False))),
    BICUBIC.fault("taps outside are zero", "taps beyond the border are zero", once(partial(bicubic, border="zero"))),
    SHRUNK.healthy("triangles"),
    SHRUNK.fault("narrow triangles", "takes the two nearest pixels", once(partial(shrunk, antialias=False))),
    SAMPLED.healthy("four corners"),
    SAMPLED.fault("corners aligned", "-1 and 1 are the outer pixels' centres", once(partial(sampled, corners=True))),
    SAMPLED.fault("border repeated", "outside is the nearest pixel", once(partial(sampled, outside=1.0))),
    SAMPLED.fault("x and y swapped", "reads the places' axes in the wrong order", once(partial(sampled, turned=True))),
)
