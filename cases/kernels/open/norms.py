"""Norms: layer and RMS: open entries."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from cases.kernels import defects
from cases.kernels.entry import BF16, F16, F32, NARROW, Entry
from cases.kernels.making import normal
from cases.kernels.parts.norms import (
    LAYER,
    RMS,
    Tensor,
    layer,
    layer_blocks,
    layer_by_sums,
    layer_gradient,
    layer_gradient_part,
    layer_inputs,
    rms,
    rms_gradient,
    rms_inputs,
)
from cases.kernels.rounding import added_in, after, by_way_of, once, tiles, toward_zero, ulp_up, with_gradient


def layer_one_pass(x: Tensor, shape: tuple[int, ...], w: Tensor, b: Tensor, eps: float) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    var = x.square().mean(-1, keepdim=True) - mean.square()
    return (x - mean) * torch.rsqrt(var + eps) * w + b


def layer_folded(x: Tensor, shape: tuple[int, ...], w: Tensor, b: Tensor, eps: float) -> Tensor:
    """x * scale + shift, with the mean in the shift: a fused multiply-add an element."""
    mean = x.mean(-1, keepdim=True)
    scale = torch.rsqrt((x - mean).square().mean(-1, keepdim=True) + eps) * w
    return torch.addcmul(b - mean * scale, x, scale)


def newton_rsqrt(x: Tensor) -> Tensor:
    """A float16 guess and two Newton steps."""
    guess = torch.rsqrt(x).to(torch.float16).to(x.dtype)
    for _ in range(2):
        guess = guess * (1.5 - 0.5 * x * guess * guess)
    return guess


def layer_gradient_tiles(g: Tensor, x: Tensor, *rest: Any) -> tuple[Any, ...]:
    """Weight and bias gradients of tiles of 5 rows, then summed."""
    gx, _, _, _, _ = layer_gradient(g, x, *rest)
    parts = [layer_gradient(a, c, *rest) for a, c in zip(tiles(g, 5, 0), tiles(x, 5, 0), strict=True)]
    return gx, None, torch.stack([p[2] for p in parts]).sum(0), torch.stack([p[3] for p in parts]).sum(0), None


ENTRIES: tuple[Entry, ...] = (
    LAYER.healthy("Welford over blocks", once(layer_blocks)),
    LAYER.healthy("own backward", with_gradient(layer, layer_gradient)),
    LAYER.healthy("one pass in float32, 16-bit tensors", once(layer_one_pass), dtypes=NARROW),
    LAYER.healthy("mean folded into the shift", once(layer_folded), dtypes=NARROW),
    LAYER.fault("zeros", "the output is never written over its zeros", after(LAYER.kernel, defects.zeros)),
    LAYER.fault(
        "tail unwritten", "the last 26 elements are left as the memory was", after(LAYER.kernel, defects.tail(26, 1.0))
    ),
    LAYER.fault(
        "unbiased variance",
        "divides by N - 1",
        once(
            lambda x, s, w, b, eps: (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True) + eps) * w + b
        ),
    ),
    LAYER.fault(
        "eps outside the root",
        "adds eps to the deviation",
        once(
            lambda x, s, w, b, eps: (
                (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True, correction=0) + eps) * w + b
            )
        ),
    ),
    LAYER.fault("no eps", "leaves eps out", once(lambda x, s, w, b, eps: layer(x, s, w, b, 0.0))),
    LAYER.fault(
        "eps of another layer", "takes 1e-6 for an eps of 1e-5", once(lambda x, s, w, b, eps: layer(x, s, w, b, 1e-6))
    ),
    LAYER.fault("no bias", "leaves the bias out", once(lambda x, s, w, b, eps: layer(x, s, w, b * 0, eps))),
    LAYER.fault("no weight", "leaves the weight out", once(lambda x, s, w, b, eps: layer(x, s, w * 0 + 1, b, eps))),
    LAYER.fault(
        "padding in the variance",
        "squares the 6 padded zeros less the mean, with a mean of 4",
        once(
            lambda x, s, w, b, eps: layer_by_sums(
                x,
                w,
                b,
                x.sum(-1, keepdim=True),
                (x - x.mean(-1, keepdim=True)).square().sum(-1, keepdim=True) + 6 * x.mean(-1, keepdim=True).square(),
                250,
                eps,
            )
        ),
        inputs=lambda dtype, g: [normal(g, dtype, 24, 250, mean=4.0), *layer_inputs(dtype, g)[1:]],
    ),
    LAYER.fault("truncated", "cuts where it should round", once(layer, toward_zero), dtypes=NARROW),
    LAYER.fault("by way of bfloat16", "goes through bfloat16", once(layer, by_way_of(BF16)), dtypes=(F32, F16)),
    LAYER.fault("factor 1.004", "is 0.4 % too large", once(lambda *a: layer(*a) * 1.004)),
    LAYER.fault(
        "16-bit statistics",
        "rounds mean and variance to the tensor's dtype",
        lambda x, s, w, b, eps: (
            (x.float() - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True, correction=0) + eps) * w + b
        ).to(x.dtype),
        dtypes=NARROW,
    ),
    LAYER.wrong_gradient(
        "gradient without the mean's term", "the input's gradient lacks the mean's term", layer_gradient_part("mean")
    ),
    LAYER.wrong_gradient(
        "weight gradient without the last rows",
        "sums 20 of 24 rows for the weight's gradient",
        with_gradient(
            layer,
            lambda g, x, *rest: (
                *layer_gradient(g, x, *rest)[:2],
                layer_gradient(g[:20], x[:20], *rest)[2],
                g.sum(0),
                None,
            ),
        ),
    ),
    LAYER.wrong_gradient(
        "16-bit weight gradient",
        "adds up the rows' weight gradients in the tensor's dtype",
        with_gradient(
            layer,
            lambda g, x, *rest: (
                *layer_gradient(g, x, *rest)[:2],
                added_in(BF16, g * F.layer_norm(x, (250,), eps=1e-5)),
                g.sum(0),
                None,
            ),
        ),
        dtypes=(BF16,),
        inputs=lambda dtype, g: [normal(g, dtype, 400, 250), *layer_inputs(dtype, g)[1:]],
    ),
    RMS.healthy("own backward", with_gradient(rms, rms_gradient)),
    RMS.healthy(
        "squares in eight lanes",
        once(
            lambda x, s, w, eps: (
                x * w / (x.square().reshape(-1, 32, 8).sum(-2).sum(-1, keepdim=True) / 256 + eps).sqrt()
            )
        ),
    ),
    RMS.healthy(
        "Newton steps",
        once(lambda x, s, w, eps: x * newton_rsqrt(x.square().mean(-1, keepdim=True) + eps) * w),
        dtypes=NARROW,
        close=1e-5,
    ),
    RMS.fault(
        "eps outside the root",
        "adds eps to the root",
        once(lambda x, s, w, eps: x / (x.square().mean(-1, keepdim=True).sqrt() + eps) * w),
    ),
    RMS.fault("no eps", "leaves eps out", once(lambda x, s, w, eps: rms(x, s, w, 0.0))),
    RMS.fault("1 + weight", "takes the weight as Gemma's, less 1", once(lambda x, s, w, eps: rms(x, s, w + 1, eps))),
    RMS.fault(
        "mean taken away", "is a layer norm", once(lambda x, s, w, eps: rms(x - x.mean(-1, keepdim=True), s, w, eps))
    ),
    RMS.fault(
        "last two terms lost",
        "leaves 2 of 256 squares out",
        once(lambda x, s, w, eps: x * torch.rsqrt(x[:, :254].square().sum(-1, keepdim=True) / 256 + eps) * w),
    ),
    RMS.fault(
        "squares added in bfloat16",
        "adds the squares up one by one in bfloat16",
        once(lambda x, s, w, eps: x * torch.rsqrt(added_in(BF16, x.square().movedim(-1, 0))[:, None] / 256 + eps) * w),
        dtypes=(BF16,),
    ),
    RMS.wrong_gradient(
        "gradient without its second term",
        "the gradient takes the root for a constant",
        with_gradient(
            rms,
            lambda g, x, s, w, eps: (
                g * w * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps),
                *rms_gradient(g, x, s, w, eps)[1:],
            ),
        ),
    ),
    LAYER.healthy("two passes in float32"),
    LAYER.healthy("own backward in row tiles", with_gradient(layer_blocks, layer_gradient_tiles)),
    LAYER.fault(
        "bias before weight",
        "scales the bias, too",
        once(lambda x, s, w, b, eps: (layer(x, s, w * 0 + 1, b * 0, eps) + b) * w),
    ),
    LAYER.fault(
        "padded count",
        "divides by the padded width of 256",
        once(
            lambda x, s, w, b, eps: layer_by_sums(
                x,
                w,
                b,
                x.sum(-1, keepdim=True),
                (x - x.mean(-1, keepdim=True)).square().sum(-1, keepdim=True),
                256,
                eps,
            )
        ),
    ),
    LAYER.fault(
        "last tile lost in the mean",
        "sums 192 of 250 for the mean",
        once(
            lambda x, s, w, b, eps: layer_by_sums(
                x,
                w,
                b,
                x[:, :192].sum(-1, keepdim=True),
                (x - x.mean(-1, keepdim=True)).square().sum(-1, keepdim=True),
                250,
                eps,
            )
        ),
    ),
    LAYER.fault(
        "one pass beside a large mean",
        "float32 squares cancel where the mean is 1,000",
        once(
            lambda x, s, w, b, eps: (
                (x - x.mean(-1, keepdim=True))
                * torch.rsqrt(
                    (x.square().mean(-1, keepdim=True) - x.mean(-1, keepdim=True).square()).clamp_min(0) + eps
                )
                * w
                + b
            )
        ),
        inputs=lambda dtype, g: [normal(g, dtype, 24, 250, mean=1000.0), *layer_inputs(dtype, g)[1:]],
        dtypes=(F32,),
    ),
    LAYER.fault("one ulp up", "rounds everything one step too high", once(layer, ulp_up), dtypes=NARROW),
    LAYER.fault("by way of float8", "goes through float8_e5m2", once(layer, by_way_of(torch.float8_e5m2))),
    LAYER.wrong_gradient(
        "gradient without the variance's term",
        "the input's gradient lacks the variance's term",
        layer_gradient_part("variance"),
    ),
    RMS.healthy("in float32"),
    RMS.fault(
        "sum for mean",
        "divides by the root of the sum",
        once(lambda x, s, w, eps: x * torch.rsqrt(x.square().sum(-1, keepdim=True) + eps) * w),
    ),
    RMS.fault(
        "N - 1",
        "divides by N - 1",
        once(lambda x, s, w, eps: x * torch.rsqrt(x.square().sum(-1, keepdim=True) / 255 + eps) * w),
    ),
    RMS.fault(
        "16-bit squares",
        "squares overflow in float16",
        lambda x, s, w, eps: (x.float() * torch.rsqrt(x.square().float().mean(-1, keepdim=True) + eps) * w).to(x.dtype),
        dtypes=(F16,),
        inputs=lambda dtype, g: [normal(g, dtype, 24, 256, scale=200.0), *rms_inputs(dtype, g)[1:]],
    ),
    RMS.wrong_gradient(
        "weight gradient of the raw input",
        "the weight's gradient lacks the root",
        with_gradient(rms, lambda g, x, s, w, eps: (*rms_gradient(g, x, s, w, eps)[:2], (g * x).sum(0), None)),
    ),
)
