"""Convolutions and pooling: open entries."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from cases.kernels import defects
from cases.kernels.entry import ACCELERATOR, BF16, F16, F32, NARROW, Entry
from cases.kernels.parts.convolution import CAUSAL, CONV, POOL, UPSAMPLE, Tensor, causal, conv_gradient
from cases.kernels.rounding import added_in, after, once, stepwise, toward_zero, with_gradient


def by_taps(x: Tensor, w: Tensor, b: Tensor, stride: int, padding: int) -> Tensor:
    """Nine shifted products, added up."""
    wide = F.pad(x, (1, 1, 1, 1))
    taps = [
        torch.einsum("oc,nchw->nohw", w[:, :, i, j], wide[:, :, i : i + 11, j : j + 11])
        for i in range(3)
        for j in range(3)
    ]
    return torch.stack(taps).sum(0) + b[:, None, None]


ENTRIES: tuple[Entry, ...] = (
    CONV.healthy("im2col"),
    CONV.healthy("tap by tap", once(by_taps)),
    CONV.fault("zeros", "gives zeros", after(CONV.kernel, defects.zeros)),
    CONV.fault(
        "last input channel lost",
        "sums 5 of 6 channels",
        once(lambda x, w, b, s, p: F.conv2d(x[:, :5], w[:, :5], b, s, p)),
    ),
    CONV.fault(
        "padding on one side",
        "pads by 2 at the end",
        once(lambda x, w, b, s, p: F.conv2d(F.pad(x, (0, 2, 0, 2)), w, b)),
    ),
    CONV.fault(
        "kernel transposed",
        "swaps height and width",
        once(lambda x, w, b, s, p: F.conv2d(x, w.transpose(2, 3), b, s, p)),
    ),
    CONV.fault(
        "16-bit accumulation",
        "adds the nine taps up in the tensors' dtype",
        lambda x, w, b, s, p: once(
            lambda x2, w2, b2, s, p: (
                added_in(
                    x.dtype,
                    torch.stack([by_taps(x2, w2 * (torch.arange(9).view(3, 3) == t), b2 * 0, s, p) for t in range(9)]),
                )
                + b2[:, None, None]
            )
        )(x, w, b, s, p),
        dtypes=NARROW,
    ),
    CONV.fault("truncated", "cuts where it should round", once(F.conv2d, toward_zero), dtypes=NARROW),
    CONV.fault("last row of the image", "the last row is not written", after(CONV.kernel, defects.last_row_zero)),
    CONV.healthy("own backward", with_gradient(F.conv2d, lambda g, x, w, b, *_: (*conv_gradient(g, x, w), None, None))),
    CONV.wrong_gradient(
        "input gradient by unflipped weights",
        "the input's gradient does not flip the kernel",
        with_gradient(
            F.conv2d,
            lambda g, x, w, b, *_: (conv_gradient(g, x, w.flip(2, 3))[0], *conv_gradient(g, x, w)[1:], None, None),
        ),
    ),
    CAUSAL.healthy("tap by tap"),
    CAUSAL.fault("taps reversed", "takes the taps from the end", once(lambda x, w, b: causal(x, w.flip(1), b))),
    CAUSAL.fault(
        "no activation", "leaves SiLU out", once(lambda x, w, b: F.conv1d(F.pad(x, (3, 0)), w[:, None], b, groups=12))
    ),
    POOL.fault(
        "padding not counted",
        "divides by the elements inside",
        once(lambda x, k, s, p: F.avg_pool2d(x, k, s, p, count_include_pad=False)),
    ),
    POOL.fault("largest", "takes the maximum", once(F.max_pool2d)),
    POOL.fault("by 8", "divides by 8", once(lambda x, k, s, p: F.avg_pool2d(x, k, s, p) * 9 / 8)),
    UPSAMPLE.healthy("in float32", dtypes=NARROW),
    UPSAMPLE.fault("nearest", "takes the nearest", once(lambda x, size, *_: F.interpolate(x, size))),
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
