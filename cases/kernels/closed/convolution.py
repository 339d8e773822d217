"""Convolution: groups, dilation, transposed, one axis with a state, padding modes: closed entries."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from cases.kernels.entry import ACCELERATOR, F16, F32, NARROW, Entry, Task
from cases.kernels.making import normal
from cases.kernels.rounding import once, stepwise, tiles, with_gradient

Tensor = torch.Tensor


def grouped_inputs(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """Two groups of 4 channels in and 3 out; dilated, strided, padded."""
    return [
        normal(g, dtype, 2, 8, 13, 11),
        normal(g, dtype, 6, 4, 3, 3, scale=0.25),
        normal(g, dtype, 6),
        (2, 1),
        (2, 1),
        (2, 1),
        2,
    ]


def by_taps(
    x: Tensor,
    w: Tensor,
    b: Tensor,
    stride: Any,
    pad: Any,
    dilation: Any,
    groups: int,
    shuffled: bool = False,
    lost: Any = (),
) -> Tensor:
    """Tap by tap, as an implicit matrix product does; channels of a group lie together."""
    wide = F.pad(x, (pad[1], pad[1], pad[0], pad[0]))
    parts = wide.unflatten(1, (-1, groups)).transpose(1, 2) if shuffled else wide.unflatten(1, (groups, -1))
    weights = w.unflatten(0, (groups, -1))
    h = (wide.shape[2] - dilation[0] * 2 - 1) // stride[0] + 1
    v = (wide.shape[3] - dilation[1] * 2 - 1) // stride[1] + 1
    total = b[:, None, None].unflatten(0, (groups, -1))
    for i in range(3):
        for j in range(3):
            if (i, j) not in lost:
                top, left = i * dilation[0], j * dilation[1]
                seen = parts[..., top : top + (h - 1) * stride[0] + 1 : stride[0], left:][
                    ..., : (v - 1) * stride[1] + 1
                ]
                total = total + torch.einsum("ngchw,goc->ngohw", seen[..., :: stride[1]], weights[..., i, j])
    return total.flatten(1, 2)


GROUPED = Task(
    "grouped, dilated, strided",
    "convolution",
    once(by_taps),
    F.conv2d,
    grouped_inputs,
    "Functional.conv2d",
    backward=True,
)


def dilation_of(rows: Any) -> Any:
    """Another dilation, with the padding that keeps the shape."""
    return once(lambda x, w, b, s, p, d, n: by_taps(x, w, b, s, rows, rows, n))


def transposed(
    x: Tensor, w: Tensor, b: Tensor, stride: int, pad: int, more: int, flipped: bool = False, extra: str = "end"
) -> Tensor:
    """Scattered tap by tap; more: rows and columns on end."""
    n, _, h, v = x.shape
    size = [(k - 1) * stride + 3 + more for k in (h, v)]
    out = torch.zeros(n, w.shape[1], *size, dtype=x.dtype)
    w = w.flip(2, 3) if flipped else w
    for i in range(3):
        for j in range(3):
            part = torch.einsum("nchw,co->nohw", x, w[..., i, j])
            spread = torch.zeros_like(out)
            first = more if extra == "begin" else 0
            spread[:, :, i + first :: stride, j + first :: stride][:, :, :h, :v] = part
            out = out + spread
    return out[:, :, pad : size[0] - pad, pad : size[1] - pad] + b[:, None, None]


TRANSPOSED = Task(
    "transposed",
    "convolution",
    once(transposed),
    F.conv_transpose2d,
    lambda dtype, g: [
        normal(g, dtype, 2, 5, 7, 6),
        normal(g, dtype, 5, 4, 3, 3, scale=0.3),
        normal(g, dtype, 4),
        2,
        1,
        1,
    ],
    "Functional.conv_transpose2d",
)


def stream(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """Channels, a state of the 3 newest inputs before, a window of 4."""
    return [
        normal(g, dtype, 2, 24, 37),
        normal(g, dtype, 24, 4, scale=0.5),
        normal(g, dtype, 24),
        normal(g, dtype, 2, 24, 3),
    ]


def causal(
    x: Tensor, w: Tensor, b: Tensor, state: Tensor, used: bool = True, act: Any = F.silu, kept: int = 0
) -> tuple[Tensor, Tensor]:
    """Mamba's: a state goes in, one comes out."""
    whole = torch.cat([state if used else torch.zeros_like(state), x], -1)
    taps = [whole[..., n : n + 37] * w[:, n, None] for n in range(4)]
    return act(taps[3] + taps[2] + taps[1] + taps[0] + b[:, None]), whole[..., 37 - kept : 40 - kept]


def causal_reference(x: Tensor, w: Tensor, b: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    whole = torch.cat([state, x], -1)
    return F.silu(F.conv1d(whole, w[:, None], b, groups=24)), whole[..., -3:].clone()


def in_chunks(x: Tensor, w: Tensor, b: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    outs = []
    for part in tiles(x, 10):
        whole = torch.cat([state, part], -1)
        outs.append(F.silu((whole.unfold(-1, 4, 1) * w[:, None]).sum(-1) + b[:, None]))
        state = whole[..., -3:]
    return torch.cat(outs, -1), state.clone()


def activated(x: Tensor, w: Tensor, b: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    y, new = causal(x, w, b, state)
    return y, F.silu(new)


STREAM = Task("causal with a state", "convolution", once(causal), causal_reference, stream, backward=True)


def padded(mode: str, both: bool = True) -> Any:
    return lambda x, w: F.conv2d(F.pad(x, (1, 1, 1, 1) if both else (2, 0, 1, 1), mode=mode), w)


MODES = Task(
    "reflected borders",
    "convolution",
    once(lambda x, w: F.conv2d(_reflected(x), w)),
    padded("reflect"),
    lambda dtype, g: [normal(g, dtype, 2, 4, 9, 10), normal(g, dtype, 5, 4, 3, 3, scale=0.3)],
    backward=True,
)


def _reflected(x: Tensor) -> Tensor:
    rows = torch.tensor([1, *range(9), 7])
    return x[:, :, rows][..., torch.tensor([1, *range(10), 8])]


def depth(x: Tensor, w: Tensor, rows: Any = None) -> Tensor:
    """Depthwise, each channel with its own window."""
    seen = F.pad(x, (1, 1, 1, 1)).unfold(2, 3, 1).unfold(3, 3, 1)
    return (seen * w[:, 0, None, None]).sum((-1, -2))


def depth_gradient(images: int = 4, flipped: bool = True) -> Any:
    def gradient(g: Tensor, x: Tensor, w: Tensor) -> Any:
        turned = w.flip(2, 3) if flipped else w
        seen = F.pad(x, (1, 1, 1, 1)).unfold(2, 3, 1).unfold(3, 3, 1)
        gw = torch.einsum("nchw,nchwij->cij", g[:images], seen[:images])[:, None]
        return depth(g, turned), gw

    return with_gradient(depth, gradient)


DEPTH = Task(
    "depthwise",
    "convolution",
    depth_gradient(),
    lambda x, w: F.conv2d(x, w, padding=1, groups=12),
    lambda dtype, g: [normal(g, dtype, 4, 12, 10, 9), normal(g, dtype, 12, 1, 3, 3, scale=0.5)],
    backward=True,
)


TO = (
    (4, 0, -5, 0, 1, 0),
    (0, -4, -4, 1, 1, 0),
    (0, 4, -4, -1, 1, 0),
    (0, -2, -1, 2, 1, 0),
    (0, 2, -1, -2, 1, 0),
    (0, 4, 0, -5, 0, 1),
)
OF = (
    (1 / 4, 0, 0),
    (-1 / 6, -1 / 6, -1 / 6),
    (-1 / 6, 1 / 6, -1 / 6),
    (1 / 24, 1 / 12, 1 / 6),
    (1 / 24, -1 / 12, 1 / 6),
    (0, 0, 1),
)
BACK = ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1))


def winograd(x: Tensor, w: Tensor, step: Any = lambda x: x) -> Tensor:
    """F(4, 3) along a row; step: how what is transformed is kept."""
    to, of, back = (torch.tensor(rows, dtype=x.dtype) for rows in (TO, OF, BACK))
    turned = step(torch.einsum("ij,nctj->ncti", to, x.unfold(-1, 6, 4)))
    return torch.einsum("ki,ncti,oci->notk", back, turned, step(torch.einsum("ij,ocj->oci", of, w))).flatten(-2)


WINOGRAD = Task(
    "Winograd along a row",
    "convolution",
    once(winograd),
    F.conv1d,
    lambda dtype, g: [normal(g, dtype, 2, 16, 42), normal(g, dtype, 8, 16, 3, scale=0.2)],
    "Functional.conv1d",
)

ENTRIES: tuple[Entry, ...] = (
    GROUPED.healthy("tap by tap"),
    GROUPED.fault("groups interleaved", "group g takes every other channel", once(partial(by_taps, shuffled=True))),
    GROUPED.fault("corner lost", "the last tap is left out", once(partial(by_taps, lost=((2, 2),)))),
    GROUPED.fault("dilation of the columns", "rows have the columns' dilation", dilation_of((1, 1))),
    GROUPED.fault(
        "next group's weights",
        "groups take each other's weights",
        once(lambda x, w, *rest: by_taps(x, torch.cat([w[3:], w[:3]]), *rest)),
    ),
    GROUPED.fault(
        "bias of the first group",
        "the second group takes the first one's bias",
        once(lambda x, w, b, *rest: by_taps(x, w, torch.cat([b[:3], b[:3]]), *rest)),
    ),
    TRANSPOSED.healthy("scattered"),
    TRANSPOSED.fault("not flipped", "taps are those of a plain convolution", once(partial(transposed, flipped=True))),
    TRANSPOSED.fault("more at the beginning", "the extra row comes first", once(partial(transposed, extra="begin"))),
    TRANSPOSED.fault(
        "first tap lost",
        "the first tap is left out",
        once(lambda x, w, *rest: transposed(x, w * (torch.arange(9).view(3, 3) != 0), *rest)),
    ),
    STREAM.healthy("newest tap first"),
    STREAM.healthy("chunks of 10", once(in_chunks)),
    STREAM.healthy("two kernels in 16 bit", causal_reference, dtypes=NARROW, devices=ACCELERATOR, backward=False),
    STREAM.fault("state forgotten", "begins with zeros", once(partial(causal, used=False))),
    STREAM.fault("state one old", "the state that comes out lacks the newest input", once(partial(causal, kept=1))),
    STREAM.fault("activation in the state", "the state that comes out is activated", once(activated)),
    MODES.healthy("by indices"),
    MODES.fault(
        "edge twice",
        "reflects the border itself",
        once(lambda x, w: F.conv2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), w)),
    ),
    MODES.fault("around", "takes the other end", once(padded("circular"))),
    MODES.fault("left alone", "reflects two on the left and none on the right", once(padded("reflect", False))),
    DEPTH.healthy("own backward"),
    DEPTH.wrong_gradient("three images", "the weight gradient lacks the last image", depth_gradient(3)),
    DEPTH.wrong_gradient("not flipped", "the input gradient does not turn the window", depth_gradient(flipped=False)),
    DEPTH.fault("window of the next", "channels take the next one's window", once(lambda x, w: depth(x, w.roll(1, 0)))),
    WINOGRAD.healthy("F(4, 3)", dtypes=NARROW),
    WINOGRAD.fault(
        "transformed to float16",
        "what is transformed goes through float16",
        once(partial(winograd, step=stepwise(F16))),
        dtypes=(F32, F16),
    ),
)
