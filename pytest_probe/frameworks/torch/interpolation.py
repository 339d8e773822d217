"""PyTorch: interpolation, whose kernels reckon in float32 where an output lies, whatever they interpolate."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

ATEN = torch.ops.aten
# Of the cubic convolution, as in torch's kernels.
CUBIC_A = -0.75
# The same under antialiasing.
SMOOTH = -0.5


def coordinates(extent: int, count: int, align: bool, scale: float | None) -> torch.Tensor:
    """Where each place of an output lies in the input, in float32 as the kernels have it: off by 2^-24 of itself."""
    places = torch.arange(count, dtype=torch.float32)
    if align:
        return places * ((extent - 1) / (count - 1) if count > 1 else 0.0)
    return (places + 0.5) * (1 / scale if scale else extent / count) - 0.5


def neighbours(extent: int, count: int, align: bool, scale: float | None) -> tuple[torch.Tensor, torch.Tensor]:
    """For each place of an output the element before it, and how far it is behind that."""
    places = coordinates(extent, count, align, scale).clamp(min=0)
    before = places.long().clamp(max=extent - 1)
    return before, (places - before).clamp(0, 1).double()


Taps = Iterator[tuple[torch.Tensor, torch.Tensor]]


def linear_taps(extent: int, count: int, align: bool, scale: float | None) -> Taps:
    """The elements that each place of an output is made of, and their weights."""
    if count == extent:  # whatever the scale says
        yield torch.arange(count), torch.ones(count, dtype=torch.float64)
        return
    before, share = neighbours(extent, count, align, scale)
    yield before, 1 - share
    yield (before + 1).clamp(max=extent - 1), share


def cubic_taps(extent: int, count: int, align: bool, scale: float | None, dtype: torch.dtype = torch.float64) -> Taps:
    places = coordinates(extent, count, align, scale)
    before = places.floor()
    share = (places - before).clamp(0, 1).to(dtype)
    for offset in (-1, 0, 1, 2):
        away = (share - offset).abs()
        near = ((CUBIC_A + 2) * away - (CUBIC_A + 3)) * away * away + 1
        far = ((CUBIC_A * away - 5 * CUBIC_A) * away + 8 * CUBIC_A) * away - 4 * CUBIC_A
        yield (before.long() + offset).clamp(0, extent - 1), near if offset in (0, 1) else far


def triangle(away: torch.Tensor) -> torch.Tensor:
    return (1 - away).clamp(min=0)


def cubic_weight(away: torch.Tensor) -> torch.Tensor:
    near = ((SMOOTH + 2) * away - (SMOOTH + 3)) * away * away + 1
    far = ((SMOOTH * away - 5 * SMOOTH) * away + 8 * SMOOTH) * away - 4 * SMOOTH
    return torch.where(away < 1, near, torch.where(away < 2, far, 0.0))


def smooth_taps(reach: int, curve: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Taps]:
    """Of antialiasing: all elements that a curve reaches, which is as much wider as the output is coarser."""

    def function(extent: int, count: int, align: bool, scale: float | None) -> Taps:
        step = ((extent - 1) / (count - 1) if count > 1 else 0.0) if align else (1 / scale if scale else extent / count)
        wide = max(step, 1.0)
        center = (torch.arange(count, dtype=torch.float32) + 0.5) * step
        first = (center - reach * wide + 0.5).long().clamp(min=0)
        behind = (center + reach * wide + 0.5).long().clamp(max=extent)
        index = first + torch.arange(math.ceil(2 * reach * wide) + 1).unsqueeze(-1)
        weights = curve(((index - center + 0.5) * (1 / wide)).abs()).where(index < behind, 0.0)
        weights = weights / weights.sum(0)
        yield from zip(index.clamp(max=extent - 1), weights.double(), strict=True)

    return function


def resized(taps: Callable[..., Taps]) -> Callable[..., Any]:
    """One dimension after the other, the last first. A single column is left to torch's kernel, which gives others."""

    def function(x: torch.Tensor, counts: Sequence[int], align: bool, *scales: float | None) -> Any:
        if counts[-1] == 1:
            return NotImplemented
        for place in reversed(range(len(counts))):
            if counts[place] == x.shape[2 + place]:
                continue  # whatever the scale says
            dim, shape = 2 + place, (-1, *[1] * (len(counts) - 1 - place))
            found = taps(x.shape[dim], counts[place], align, scales[place] if scales else None)
            terms = (x.index_select(dim, index.to(x.device)) * weight.to(x).view(shape) for index, weight in found)
            x = functools.reduce(torch.add, terms)
        return x

    return function


def resized_backward(taps: Callable[..., Taps], copies: bool = True) -> Callable[..., torch.Tensor]:
    """What each output got from an element goes back to it. Torch's own table splits the forward only.

    copies: where no size changes the kernel copies, whatever the scale says."""

    def function(
        grad: torch.Tensor, counts: Sequence[int], sizes: Sequence[int], align: bool, *scales: float | None
    ) -> torch.Tensor:
        if copies and list(counts) == list(sizes[2:]):
            return grad.clone()
        for place, (count, extent) in enumerate(zip(counts, sizes[2:], strict=True)):
            shape = (-1, *[1] * (len(counts) - 1 - place))
            total = grad.new_zeros(*grad.shape[: 2 + place], extent, *grad.shape[3 + place :])
            for index, weight in taps(extent, count, align, scales[place] if scales else None):
                terms = grad * weight.to(grad).view(shape)
                total = total.index_add(2 + place, index.to(grad.device), terms)
            grad = total
        return grad

    return function


INTERPOLATION: Mapping[Any, Callable[..., Any]] = {
    ATEN._upsample_bilinear2d_aa.default: resized(smooth_taps(1, triangle)),
    ATEN._upsample_bicubic2d_aa.default: resized(smooth_taps(2, cubic_weight)),
    ATEN._upsample_bilinear2d_aa_backward.default: resized_backward(smooth_taps(1, triangle), copies=False),
    ATEN._upsample_bicubic2d_aa_backward.default: resized_backward(smooth_taps(2, cubic_weight), copies=False),
    ATEN.upsample_linear1d_backward.default: resized_backward(linear_taps),
    ATEN.upsample_bilinear2d_backward.default: resized_backward(linear_taps),
    ATEN.upsample_trilinear3d_backward.default: resized_backward(linear_taps),
    ATEN.upsample_bicubic2d_backward.default: resized_backward(cubic_taps),
}
