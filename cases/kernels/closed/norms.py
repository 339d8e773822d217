"""Norms: instance, weight, L2, local response, layer norm with a residual, several ranks: closed entries."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from cases.kernels.entry import F16, Entry, Task
from cases.kernels.making import normal
from cases.kernels.rounding import once, stepwise, tiles, up, with_gradient

Tensor = torch.Tensor


def image(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """Channels of unlike mean and spread; the third is nearly even."""
    x = normal(g, torch.float64, 3, 5, 9, 11) * torch.tensor([1.0, 6.0, 4e-3, 0.5, 2.0])[:, None, None] + 0.01
    w, b = normal(g, dtype, 5, mean=1.0, scale=0.3), normal(g, dtype, 5, scale=0.5)
    return [x.to(dtype), None, None, w, b, True, 0.1, 1e-5]


def instance(dims: Any = (2, 3), correction: int = 0, eps_at: str = "in", bias_first: bool = False) -> Any:
    def run(x: Tensor, m: None, v: None, w: Tensor, b: Tensor, own: bool, mom: float, eps: float) -> Tensor:
        var, mean = torch.var_mean(x, dims, correction=correction, keepdim=True)
        rstd = torch.rsqrt(var + eps) if eps_at == "in" else 1 / (var.sqrt() + eps)
        w, b = w[:, None, None], b[:, None, None]
        return ((x - mean) * rstd + b) * w if bias_first else (x - mean) * rstd * w + b

    return run


def instance_in_tiles(x: Tensor, m: None, v: None, w: Tensor, b: Tensor, own: bool, mom: float, eps: float) -> Tensor:
    """Rows of the image by themselves, put together as Chan does."""
    mean_of_rows = x.mean(-1)
    mean = mean_of_rows.mean(-1)[..., None, None]
    inner = (x - mean_of_rows[..., None]).square().sum((-1, -2))[..., None, None]
    var = (inner + 11 * (mean_of_rows[..., None] - mean).square().sum((-1, -2), keepdim=True)) / 99
    return (x - mean) / (var + eps).sqrt() * w[:, None, None] + b[:, None, None]


def instance_gradient(of_mean: float = 1.0, count: float = 99.0, images: int = 3) -> Any:
    def gradient(g: Tensor, x: Tensor, *rest: Any) -> Any:
        w, eps = rest[2], rest[-1]
        var, mean = torch.var_mean(x, (2, 3), correction=0, keepdim=True)
        rstd = torch.rsqrt(var + eps)
        hat, gw = (x - mean) * rstd, g * w[:, None, None]
        inner = of_mean * gw.sum((2, 3), keepdim=True) + hat * (gw * hat).sum((2, 3), keepdim=True)
        kept = slice(0, images)
        sums = (g * hat)[kept].sum((0, 2, 3)), g[kept].sum((0, 2, 3))
        return rstd * (gw - inner / count), None, None, *sums, None, None, None

    return with_gradient(instance(), gradient)


INSTANCE = Task(
    "instance norm",
    "norms",
    once(instance()),
    F.instance_norm,
    image,
    "Functional.instance_norm",
    backward=True,
)


def weight_normed(dim: Any = 1, gain: float = 1.0) -> Any:
    """x by a weight of that direction and length."""
    return lambda x, v, g: x @ (v * (g[:, None] * gain / v.norm(dim=dim, keepdim=True))).t()


def weight_gradient(whole: bool) -> Any:
    def gradient(g: Tensor, x: Tensor, v: Tensor, length: Tensor) -> Any:
        norm = v.norm(dim=1, keepdim=True)
        hat = v / norm
        gw = g.t() @ x
        along = (gw * hat).sum(1, keepdim=True)
        gv = length[:, None] / norm * (gw - hat * along * whole)
        return g @ (hat * length[:, None]), gv, along[:, 0]

    return with_gradient(weight_normed(), gradient)


WEIGHT = Task(
    "weight norm",
    "norms",
    weight_gradient(True),
    weight_normed(),
    lambda dtype, g: [normal(g, dtype, 20, 48), normal(g, dtype, 32, 48, scale=0.2), normal(g, dtype, 32, mean=1.0)],
    backward=True,
)


def l2_inputs(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """Rows of usual length, long ones, and ones shorter than eps."""
    x = normal(g, torch.float64, 30, 80) * torch.tensor([1.0, 60.0, 4e-4]).repeat(10)[:, None]
    return [x.to(dtype), 2.0, 1, 1e-2]


L2 = Task(
    "L2 norm of rows",
    "norms",
    once(lambda x, p, dim, eps: x * torch.rsqrt(x.square().sum(dim, keepdim=True).clamp_min(eps * eps))),
    F.normalize,
    l2_inputs,
    "Functional.normalize",
    backward=True,
)


def _l2_gradient(g: Tensor, x: Tensor, dim: int, eps: float) -> Tensor:
    norm = x.norm(dim=dim, keepdim=True)
    hat = x / norm
    return (g - hat * (g * hat).sum(dim, keepdim=True)) / norm.clamp_min(eps)


def half_squares(x: Tensor, p: float, dim: int, eps: float) -> Tensor:
    squares = x.square().sum(dim, keepdim=True, dtype=torch.float32)
    return (x.float() / squares.sqrt().clamp_min(eps)).to(x.dtype)


def response(count: float = 5.0, power: float = 0.75, low: int = 2, high: int = 2) -> Any:
    def run(x: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
        near = F.pad(x.square(), (0, 0, 0, 0, low, high)).unfold(1, low + high + 1, 1).sum(-1)
        return x * torch.exp(-power * torch.log(k + alpha * near / count))

    return run


RESPONSE = Task(
    "local response norm",
    "norms",
    once(response()),
    F.local_response_norm,
    lambda dtype, g: [normal(g, dtype, 2, 12, 6, 6, scale=3.0), 5, 0.3, 0.75, 1.0],
    "Functional.local_response_norm",
    backward=True,
)


def residual(x: Tensor, r: Tensor, w: Tensor, b: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The norm of the sum, the sum, and what the backward keeps."""
    h = x + r
    var, mean = torch.var_mean(h, -1, correction=0, keepdim=True)
    rstd = torch.rsqrt(var + eps)
    return (h - mean) * rstd * w + b, h, mean, rstd


def residual_kernel(step: Any = None, kept: Any = None, columns: int = 320, skip: float = 1.0) -> Any:
    """Statistics come out in float32; step: what becomes of a tile's sum."""

    def run(x: Tensor, r: Tensor, w: Tensor, b: Tensor, eps: float) -> tuple[Tensor, ...]:
        h = up(x) + up(r) * skip
        sums = [tile.sum(-1, keepdim=True) for tile in tiles(h[:, :columns], 64)]
        mean = torch.stack(sums if step is None else [step(item) for item in sums]).sum(0) / 320
        squares = [(tile - mean).square().sum(-1, keepdim=True) for tile in tiles(h[:, :columns], 64)]
        rstd = torch.rsqrt(torch.stack(squares).sum(0) / 320 + eps)
        y = ((h - mean) * rstd * up(w) + up(b)).to(x.dtype)
        return (y, h.to(x.dtype), *((mean, rstd) if kept is None else map(kept, (mean, rstd))))

    return run


RESIDUAL = Task(
    "layer norm of a sum",
    "norms",
    residual_kernel(),
    residual,
    lambda dtype, g: [
        *(normal(g, dtype, 20, 320, scale=s, mean=0.3) for s in (1.0, 3.0)),
        *(normal(g, dtype, 320, mean=m, scale=0.3) for m in (1.0, 0.0)),
        1e-5,
    ],
)


def ranks(apart: float = 1.0, weighted: bool = True, local: bool = False) -> Any:
    """Batch statistics of three ranks of unlike size, put together from their means and variances."""

    def run(x: Tensor, w: Tensor, b: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        parts = [x[:4], x[4:20], x[20:]]
        counts = torch.tensor([float(len(part)) for part in parts])[:, None] if weighted else torch.ones(3, 1)
        means = torch.stack([part.mean(0) for part in parts])
        inner = torch.stack([(part - part.mean(0)).square().mean(0) for part in parts])
        mean = (counts * means).sum(0) / counts.sum()
        var = (counts * (inner + apart * (means - mean).square())).sum(0) / counts.sum()
        unbiased = var * 30 / 29 if not local else var * 10 / 9
        return (x - mean) / (var + eps).sqrt() * w + b, unbiased

    return run


def whole(x: Tensor, w: Tensor, b: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return (x - x.mean(0)) / (x.var(0, correction=0) + eps).sqrt() * w + b, x.var(0)


RANKS = Task(
    "synchronised batch norm",
    "norms",
    once(ranks()),
    whole,
    lambda dtype, g: [
        (normal(g, torch.float64, 30, 40) + torch.arange(30.0)[:, None] / 20).to(dtype),
        normal(g, dtype, 40, mean=1.0, scale=0.3),
        normal(g, dtype, 40),
        1e-5,
    ],
)

ENTRIES: tuple[Entry, ...] = (
    INSTANCE.healthy("two passes"),
    INSTANCE.healthy("rows put together", once(instance_in_tiles)),
    INSTANCE.healthy("own backward", instance_gradient()),
    INSTANCE.fault("over the batch", "one mean for all images", once(instance((0, 2, 3)))),
    INSTANCE.fault("by 98", "divides by one less than the pixels", once(instance(correction=1))),
    INSTANCE.fault("eps beside the deviation", "adds eps to the deviation", once(instance(eps_at="out"))),
    INSTANCE.fault("bias scaled", "adds the bias before the weight", once(instance(bias_first=True))),
    INSTANCE.wrong_gradient("mean's term lost", "the mean is a constant in the backward", instance_gradient(0.0)),
    INSTANCE.wrong_gradient("two images", "weight and bias gradients lack the last image", instance_gradient(images=2)),
    INSTANCE.wrong_gradient(
        "padded count", "the backward divides by 128, the padded number of pixels", instance_gradient(count=128.0)
    ),
    WEIGHT.healthy("own backward"),
    WEIGHT.fault("norm of columns", "divides by the norm over the outputs", once(weight_normed(0))),
    WEIGHT.fault("norm of all", "divides by the whole weight's norm", once(weight_normed((0, 1)))),
    WEIGHT.wrong_gradient("not projected", "the direction's gradient keeps its part along it", weight_gradient(False)),
    L2.healthy("root of the squares"),
    L2.fault(
        "eps added",
        "adds eps to the norm",
        once(lambda x, p, d, eps: x / (x.norm(dim=d, keepdim=True) + eps)),
    ),
    L2.fault(
        "eps not squared",
        "the squares are bounded by eps",
        once(lambda x, p, d, eps: x * torch.rsqrt(x.square().sum(d, keepdim=True).clamp_min(eps))),
    ),
    L2.fault(
        "squares overflow",
        "squares in float16 are infinite",
        half_squares,
        dtypes=(F16,),
        inputs=lambda dtype, g: [normal(g, dtype, 30, 80, scale=150.0), 2.0, 1, 1e-2],
    ),
    L2.wrong_gradient(
        "gradient in the clamped rows",
        "rows shorter than eps have the gradient of the others",
        with_gradient(
            lambda x, p, d, eps: x / x.norm(dim=d, keepdim=True).clamp_min(eps),
            lambda g, x, p, d, eps: (_l2_gradient(g, x, d, eps), None, None, None),
        ),
    ),
    RESPONSE.healthy("by log and exp"),
    RESPONSE.fault("not by the size", "alpha is not divided by 5", once(response(1.0))),
    RESPONSE.fault("one channel late", "the window is one channel late", once(response(low=1, high=3))),
    RESPONSE.fault("square root", "a power of 1/2", once(response(power=0.5))),
    RESIDUAL.healthy("statistics in float32"),
    RESIDUAL.fault("residual once more", "adds the residual with 1.01", residual_kernel(skip=1.01)),
    RESIDUAL.fault("tile of 64 lost", "the fifth tile is not in the statistics", residual_kernel(columns=256)),
    RESIDUAL.fault(
        "16-bit statistics kept",
        "mean and deviation for the backward go through bfloat16",
        residual_kernel(kept=stepwise(torch.bfloat16)),
    ),
    RESIDUAL.fault(
        "16-bit partial sums",
        "each tile's sum goes through bfloat16",
        residual_kernel(stepwise(torch.bfloat16)),
        dtypes=(torch.float32, F16),
    ),
    RANKS.healthy("means and variances put together"),
    RANKS.fault("means not apart", "the variance lacks the spread of the ranks' means", once(ranks(0.0))),
    RANKS.fault("ranks alike", "ranks count the same whatever their rows", once(ranks(weighted=False))),
    RANKS.fault("local count", "the running variance is corrected by one rank's count", once(ranks(local=True))),
)
