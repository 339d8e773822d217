"""Norms: gated, with an offset weight, per head, with an activation, of a batch in training: closed entries."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from cases.kernels.entry import ACCELERATOR, F16, F32, NARROW, Entry, Task
from cases.kernels.making import normal, state
from cases.kernels.rounding import added_in, once, tiles, up, with_gradient

Tensor = torch.Tensor


def gated(
    x: Tensor, z: Tensor, w: Tensor, eps: float, early: bool = True, groups: int = 4, act: Any = F.silu
) -> Tensor:
    """The gate comes before the norm, which goes over groups of channels."""
    h = (x * act(z) if early else x).unflatten(-1, (groups, -1))
    rstd = torch.rsqrt(h.square().mean(-1, keepdim=True) + eps)
    return (h * rstd).flatten(-2) * w * (1 if early else act(z))


GATED = Task(
    "gated RMS norm",
    "norms",
    once(lambda x, z, w, eps: _gated_lanes(x * z / (1 + torch.exp(-z)), w, eps)),
    gated,
    lambda dtype, g: [
        normal(g, dtype, 20, 96, scale=0.5),
        normal(g, dtype, 20, 96, scale=2.0),
        normal(g, dtype, 96, mean=1.0),
        1e-5,
    ],
    backward=True,
)


def _gated_lanes(h: Tensor, w: Tensor, eps: float) -> Tensor:
    squares = torch.stack([part.square().sum(-1) for part in tiles(h, 24)], -1)
    return h / torch.sqrt(squares / 24 + eps).repeat_interleave(24, -1) * w


def offset(x: Tensor, w: Tensor, eps: float, one: float = 1.0) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * (one + w)


def offset_gradient(rows: int = 30, one: float = 1.0, step: Any = None) -> Any:
    def gradient(g: Tensor, x: Tensor, w: Tensor, eps: float) -> Any:
        rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
        hat, gw = x * rstd, g * (one + w)
        each = (g * hat)[:rows]
        return rstd * (gw - hat * (gw * hat).mean(-1, keepdim=True)), each.sum(0) if step is None else step(each), None

    return with_gradient(offset, gradient)


OFFSET = Task(
    "RMS norm with a weight from 0",
    "norms",
    offset_gradient(),
    offset,
    lambda dtype, g: [normal(g, dtype, 30, 128, scale=0.02), normal(g, dtype, 128, scale=0.2), 1e-4],
    backward=True,
)


def each_head(x: Tensor, w: Tensor, eps: float, whole: bool = False, channels: int = 16) -> Tensor:
    heads = x.unflatten(-1, (6, 16))
    squares = heads[..., :channels].square().sum(-1, keepdim=True) / 16
    squares = squares.mean(-2, keepdim=True) if whole else squares
    return (heads * torch.rsqrt(squares + eps) * w).flatten(-2)


def rounded_first(x: Tensor, w: Tensor, eps: float) -> Tensor:
    heads = up(x).unflatten(-1, (6, 16))
    hat = heads * torch.rsqrt(heads.square().mean(-1, keepdim=True) + eps)
    return (w * hat.to(x.dtype)).flatten(-2)


HEADS = Task(
    "norm of each head",
    "norms",
    once(each_head),
    lambda x, w, eps: F.rms_norm(x.unflatten(-1, (6, 16)), (16,), w, eps).flatten(-2),
    lambda dtype, g: [normal(g, dtype, 2, 20, 96), normal(g, dtype, 16, mean=1.0, scale=0.3), 1e-6],
    backward=True,
)


def group(
    x: Tensor, w: Tensor, b: Tensor, eps: float, late: bool = True, count: float = 245.0, eps_scale: float = 1.0
) -> Tensor:
    """Channels last, with SiLU; two passes."""
    parts = x.unflatten(-1, (3, 5))
    mean = parts.sum((1, 2, 4), keepdim=True) / count
    var = (parts - mean).square().sum((1, 2, 4), keepdim=True) / count
    hat = ((parts - mean) * torch.rsqrt(var + eps * eps_scale)).flatten(-2)
    return F.silu(hat * w + b) if late else F.silu(hat) * w + b


def group_reference(x: Tensor, w: Tensor, b: Tensor, eps: float) -> Tensor:
    return F.silu(F.group_norm(x.movedim(-1, 1), 3, w, b, eps)).movedim(1, -1)


GROUP = Task(
    "group norm and SiLU, channels last",
    "norms",
    once(group),
    group_reference,
    lambda dtype, g: [
        normal(g, dtype, 2, 7, 7, 15, scale=0.05, mean=0.05),
        normal(g, dtype, 15, mean=1.0),
        normal(g, dtype, 15),
        1e-3,
    ],
    backward=True,
)


def batch_inputs(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    return [
        normal(g, dtype, 6, 5, 8, 8, scale=1.5, mean=0.5),
        None,
        None,
        normal(g, dtype, 5, mean=1.0, scale=0.3),
        normal(g, dtype, 5),
        True,
        0.1,
        1e-5,
    ]


def batch(x: Tensor, m: None, v: None, w: Tensor, b: Tensor, training: bool, momentum: float, eps: float) -> Tensor:
    var, mean = torch.var_mean(x, (0, 2, 3), correction=0, keepdim=True)
    return (x - mean) * torch.rsqrt(var + eps) * w[:, None, None] + b[:, None, None]


def batch_gradient(fixed: bool = False, count: float = 384.0, hat_w: bool = False) -> Any:
    """fixed: statistics are constants, as in evaluation."""

    def gradient(g: Tensor, x: Tensor, *rest: Any) -> Any:
        var, mean = torch.var_mean(x, (0, 2, 3), correction=0, keepdim=True)
        rstd = torch.rsqrt(var + rest[-1])
        hat = (x - mean) * rstd
        gb, gw = g.sum((0, 2, 3)), (g * (x if hat_w else hat)).sum((0, 2, 3))
        inner = gb[:, None, None] + hat * (g * hat).sum((0, 2, 3))[:, None, None]
        gx = rest[2][:, None, None] * rstd * (g - (0.0 if fixed else inner / count))
        return gx, None, None, gw, gb, None, None, None

    return with_gradient(batch, gradient)


BATCH = Task(
    "batch norm in training",
    "norms",
    batch_gradient(),
    F.batch_norm,
    batch_inputs,
    "Functional.batch_norm",
    backward=True,
)


def running(x: Tensor, mean: Tensor, var: Tensor, share: float = 0.1, own: float = 0.1, wide: bool = True) -> Any:
    """Running statistics in float32, moved towards the batch's."""
    value = up(x) if wide else x
    new, spread = value.mean(0), value.var(0)
    mean.lerp_(new.to(mean.dtype), share)
    var.lerp_(spread.to(var.dtype), own)
    return mean * 1, var * 1


RUNNING = Task(
    "running statistics",
    "norms",
    running,
    lambda x, mean, var: (mean.mul_(0.9).add_(0.1 * x.mean(0)) * 1, var.mul_(0.9).add_(0.1 * x.var(0)) * 1),
    lambda dtype, g: [
        normal(g, dtype, 64, 40, mean=2.0),
        normal(g, state(dtype), 40),
        1 + normal(g, state(dtype), 40) ** 2,
    ],
)

ENTRIES: tuple[Entry, ...] = (
    GATED.healthy("groups of 24"),
    GATED.fault("gate after the norm", "the norm goes over the ungated", once(partial(gated, early=False))),
    GATED.fault("one group", "the norm goes over all channels", once(partial(gated, groups=1))),
    GATED.fault("gate by sigmoid", "the gate lacks its factor", once(partial(gated, act=torch.sigmoid))),
    OFFSET.healthy("own backward"),
    OFFSET.fault("no one", "the weight is taken as it is", once(partial(offset, one=0.0))),
    OFFSET.fault(
        "root of the mean plus eps",
        "eps is added to the root",
        once(lambda x, w, eps: x / (x.square().mean(-1, keepdim=True).sqrt() + eps) * (1 + w)),
    ),
    OFFSET.wrong_gradient("one lost in the backward", "the backward takes the mere weight", offset_gradient(one=0.0)),
    OFFSET.wrong_gradient("partial sums", "the weight gradient lacks the last rows", offset_gradient(28)),
    OFFSET.wrong_gradient(
        "16-bit row sums",
        "the weight gradient is added up in float16",
        offset_gradient(step=partial(added_in, F16)),
        dtypes=(F32,),
    ),
    HEADS.healthy("head by head"),
    HEADS.healthy("rounded before the weight", rounded_first, dtypes=NARROW, devices=ACCELERATOR, backward=False),
    HEADS.fault("all heads at once", "one norm for all heads", once(partial(each_head, whole=True))),
    HEADS.fault("half of the head", "squares of the first 12 channels alone", once(partial(each_head, channels=12))),
    GROUP.healthy("channels last"),
    GROUP.fault("SiLU before the weight", "weight and bias come after SiLU", once(partial(group, late=False))),
    GROUP.fault("padded count", "divides by 256", once(partial(group, count=256.0))),
    GROUP.fault("eps of 1e-5", "takes another eps", once(partial(group, eps_scale=0.01))),
    BATCH.healthy("own backward"),
    BATCH.wrong_gradient("statistics fixed", "the statistics are constants in the backward", batch_gradient(True)),
    BATCH.wrong_gradient("count of an image", "divides by one image's pixels", batch_gradient(count=64.0)),
    BATCH.wrong_gradient("weight by the input", "the weight gradient is by the raw input", batch_gradient(hat_w=True)),
    RUNNING.healthy("in float32"),
    RUNNING.fault("share twice", "the mean moves twice as far", partial(running, share=0.2)),
    RUNNING.fault("variance kept", "the variance does not move", partial(running, own=0.0)),
    RUNNING.fault(
        "16-bit batch statistics", "the batch's are rounded to the dtype", partial(running, wide=False), dtypes=NARROW
    ),
)
