"""Norms: layer and RMS: closed entries."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.kernels.entry import F16, F32, NARROW, Entry
from benchmarks.kernels.making import normal
from benchmarks.kernels.parts.norms import (
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
from benchmarks.kernels.rounding import (
    by_way_of,
    once,
    tiles,
    ulp_up,
    with_gradient,
)


def layer_gradient_tiles(g: Tensor, x: Tensor, *rest: Any) -> tuple[Any, ...]:
    """Weight and bias gradients of tiles of 5 rows, then summed."""
    gx, _, _, _, _ = layer_gradient(g, x, *rest)
    parts = [layer_gradient(a, c, *rest) for a, c in zip(tiles(g, 5, 0), tiles(x, 5, 0), strict=True)]
    return gx, None, torch.stack([p[2] for p in parts]).sum(0), torch.stack([p[3] for p in parts]).sum(0), None


ENTRIES: tuple[Entry, ...] = (
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
