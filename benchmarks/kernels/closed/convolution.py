"""Convolutions and pooling: closed entries."""

from __future__ import annotations

import torch.nn.functional as F

from benchmarks.kernels.entry import ACCELERATOR, BF16, F16, F32, NARROW, Entry
from benchmarks.kernels.parts.convolution import CAUSAL, CONV, POOL, UPSAMPLE, causal, conv_gradient
from benchmarks.kernels.rounding import once, stepwise, with_gradient

ENTRIES: tuple[Entry, ...] = (
    CONV.fault(
        "flipped", "is a convolution, not a correlation", once(lambda x, w, b, s, p: F.conv2d(x, w.flip(2, 3), b, s, p))
    ),
    CONV.fault("no bias", "leaves the bias out", once(lambda x, w, b, s, p: F.conv2d(x, w, None, s, p))),
    CONV.fault(
        "edge repeated",
        "pads with the edge in place of zeros",
        once(lambda x, w, b, s, p: F.conv2d(F.pad(x, (1, 1, 1, 1), "replicate"), w, b)),
    ),
    CONV.fault(
        "Winograd in 16 bit",
        "rounds transformed weights to bfloat16",
        once(lambda x, w, b, s, p: F.conv2d(x, stepwise(BF16)(w * 3) / 3, b, s, p)),
        dtypes=(F32, F16),
    ),
    CONV.wrong_gradient(
        "weight gradient of one image",
        "the weight's gradient is the first image's",
        with_gradient(
            F.conv2d,
            lambda g, x, w, b, *_: (
                conv_gradient(g, x, w)[0],
                *conv_gradient(g[:1], x[:1], w)[1:2],
                g.sum((0, 2, 3)),
                None,
                None,
            ),
        ),
    ),
    CAUSAL.healthy("steps in 16 bit", causal, dtypes=NARROW, devices=ACCELERATOR, backward=False),
    CAUSAL.fault(
        "sees the future",
        "is centred",
        once(lambda x, w, b: F.silu(F.conv1d(F.pad(x, (2, 1)), w[:, None], b, groups=12))),
    ),
    POOL.healthy("window by window"),
    UPSAMPLE.fault(
        "corners aligned",
        "aligns corners",
        once(lambda x, size, *_: F.interpolate(x, size, mode="bilinear", align_corners=True)),
    ),
)
