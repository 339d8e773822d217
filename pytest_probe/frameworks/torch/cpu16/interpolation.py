"""PyTorch: interpolation as the CPU computes it in 16 bit, with rounded weights."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from pytest_probe.frameworks.torch.cpu16.sequential import rounded_once
from pytest_probe.frameworks.torch.decompositions import cubic_taps, neighbours

# Height and width together of an output that a kernel computes that rounds once.
SMALL_LINE = 128


def upsampled(rank: int) -> Callable[..., torch.Tensor]:
    """Linear interpolation: the weights of neighbours are rounded."""

    def function(
        dtype: torch.dtype, x: torch.Tensor, counts: Sequence[int], align: bool, *scales: float | None
    ) -> torch.Tensor:
        for place, (count, scale) in enumerate(zip(counts, scales or [None] * rank, strict=True)):
            dim = x.ndim - rank + place
            extent = x.shape[dim]
            before, share = neighbours(extent, count, align, scale)
            later = rounded_once(share, dtype)
            shape = (-1, *[1] * (rank - 1 - place))
            behind = (before + 1).clamp(max=extent - 1)
            first = x.index_select(dim, before) * rounded_once(1 - later, dtype).view(shape)
            x = first + x.index_select(dim, behind) * later.view(shape)
        return x

    return function


def upsampled_image(dtype: torch.dtype, x: torch.Tensor, counts: Sequence[int], *rest: Any) -> Any:
    """Small images, and those of many channels that lie last, go to a kernel that rounds once."""
    many = x.shape[1] > 3 and x.is_contiguous(memory_format=torch.channels_last)
    return NotImplemented if many or sum(counts) <= SMALL_LINE else upsampled(2)(dtype, x, counts, *rest)


def bicubic(
    dtype: torch.dtype, x: torch.Tensor, counts: Sequence[int], align: bool, *scales: float | None
) -> torch.Tensor:
    """The weights, reckoned in float32, are rounded; their sums are not."""
    for place in (1, 0):
        taps = cubic_taps(x.shape[2 + place], counts[place], align, scales[place] if scales else None, torch.float32)
        found = ((index, rounded_once(weight.double(), dtype).view(-1, *[1] * (1 - place))) for index, weight in taps)
        x = functools.reduce(torch.add, (x.index_select(2 + place, index) * weight for index, weight in found))
    return x
