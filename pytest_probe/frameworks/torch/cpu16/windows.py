"""PyTorch: kernels over windows (padding, pooling, folding): in 16 bit torch's own CPU adds up in sequence.

Written as they run: each takes the dtype to round to and then the kernel's own arguments, in float64.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from pytest_probe.frameworks.torch.cpu16.interpolation import bicubic, upsampled, upsampled_image
from pytest_probe.frameworks.torch.cpu16.sequential import piled, rounded_once

ATEN = torch.ops.aten


def shown(dtype: torch.dtype, grad: torch.Tensor, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """The gradient of x where grad's trailing dimensions show it at `places`, flat in x's trailing dimensions."""
    batch = grad.shape[: grad.ndim - places.ndim]
    terms = grad.reshape(*batch, -1).reshape(-1, places.numel()).T
    total = x.new_zeros(x[(0,) * len(batch)].numel(), terms.shape[1])
    return piled(dtype, total, places.reshape(-1), terms).T.reshape(x.shape)


def pad_backward(mode: str, rank: int) -> Callable[..., torch.Tensor]:
    """Gradients of an element that padding shows several times."""

    def function(dtype: torch.dtype, grad: torch.Tensor, x: torch.Tensor, padding: Sequence[int]) -> torch.Tensor:
        extents = x.shape[x.ndim - rank :]
        # Padding an image of place numbers shows where each element goes.
        numbers = torch.arange(extents.numel(), dtype=torch.float64).view(1, 1, *extents)
        places = torch.nn.functional.pad(numbers, list(padding), mode=mode)[0, 0].long()
        return shown(dtype, grad, x, places)

    return function


def pooling_gradient(
    dtype: torch.dtype, grad: torch.Tensor, x: torch.Tensor, indices: torch.Tensor, rank: int
) -> torch.Tensor:
    """The gradient of maxima at `indices`, flat in each plane of x's last `rank` dimensions."""
    extent = x.shape[x.ndim - rank :].numel()
    planes = torch.arange(x.numel() // extent).view(-1, 1) * extent
    places = indices.reshape(len(planes), -1) + planes
    return piled(dtype, x.new_zeros(x.numel()), places.reshape(-1), grad.reshape(-1)).view(x.shape)


def max_pool_backward(rank: int) -> Callable[..., torch.Tensor]:
    def function(dtype: torch.dtype, grad: torch.Tensor, x: torch.Tensor, *rest: Any) -> torch.Tensor:
        return pooling_gradient(dtype, grad, x, rest[-1], rank)

    return function


def unfolded_backward(
    dtype: torch.dtype, grad: torch.Tensor, shape: Sequence[int], dim: int, size: int, step: int
) -> torch.Tensor:
    x = grad.new_zeros(tuple(shape))
    places = torch.arange(x.numel()).view(x.shape).unfold(dim, size, step)
    return piled(dtype, x.view(-1), places.reshape(-1), grad.reshape(-1)).view(x.shape)


def folded(
    dtype: torch.dtype, columns: torch.Tensor, extents: Sequence[int], kernel: Sequence[int], *window: Sequence[int]
) -> torch.Tensor:
    """Columns added up in the image that they show, one position of the kernel after another."""
    numbers = torch.arange(1.0, extents[0] * extents[1] + 1, dtype=torch.float64).view(1, 1, *extents)
    # Numbers from 1 on show where each column came from; 0 is padding.
    places = ATEN.im2col.default(numbers, kernel, *window).long().reshape(-1) - 1
    batch, planes = columns.shape[:-2], columns.shape[-2] // (kernel[0] * kernel[1])
    terms = columns.reshape(-1, places.numel()).T[places >= 0]
    total = columns.new_zeros(extents[0] * extents[1], terms.shape[1])
    return piled(dtype, total, places[places >= 0], terms).T.reshape(*batch, planes, *extents)


def averaged_backward(rank: int) -> Callable[..., torch.Tensor]:
    def function(
        dtype: torch.dtype,
        grad: torch.Tensor,
        x: torch.Tensor,
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil: bool,
        with_padding: bool,
        divisor: int | None,
    ) -> torch.Tensor:
        kernel, stride, padding = (
            list(item) * (rank // len(item)) if item else [] for item in (kernel, stride or kernel, padding)
        )
        spans = [spans_of(x.shape[d], grad.shape[d], kernel[d], stride[d], padding[d]) for d in range(-rank, 0)]
        whole = [[len(span) for span in line] for line in spans]
        windows = [
            [range(max(span.start, 0), min(span.stop, x.shape[d])) for span in line]
            for d, line in zip(range(-rank, 0), spans, strict=True)
        ]
        counted = whole if with_padding else [[len(part) for part in line] for line in windows]
        sizes = functools.reduce(torch.outer, [torch.tensor(line, dtype=torch.float64) for line in counted[:2]])
        if rank == 1:
            sizes = torch.tensor(counted[0], dtype=torch.float64)
        elif rank == 3:
            sizes = sizes[..., None] * torch.tensor(counted[2], dtype=torch.float64)
        if divisor:
            sizes = torch.full_like(sizes, divisor)
        return windowed(dtype, x, rank, windows, rounded_once(grad / rounded_once(sizes, dtype), dtype))

    return function


def spans_of(extent: int, count: int, kernel: int, stride: int, padding: int) -> list[range]:
    """Windows along a dimension, with what they show of the padding."""
    starts = [i * stride - padding for i in range(count)]
    return [range(start, min(start + kernel, extent + padding)) for start in starts]


def windowed(
    dtype: torch.dtype, x: torch.Tensor, rank: int, windows: Sequence[Sequence[range]], delta: torch.Tensor
) -> torch.Tensor:
    """delta, one for each window, added to all that the window shows; windows are ranges along each dimension."""
    extents = x.shape[x.ndim - rank :]
    numbers = torch.arange(extents.numel()).view(extents)
    places, owners = [], []
    for owner, window in enumerate(itertools.product(*windows)):
        inside = numbers[tuple(slice(part.start, part.stop) for part in window)].reshape(-1)
        places.append(inside)
        owners.append(torch.full_like(inside, owner))
    terms = delta.reshape(-1, len(places)).T[torch.cat(owners)]
    total = x.new_zeros(extents.numel(), terms.shape[1])
    return piled(dtype, total, torch.cat(places), terms).T.reshape(x.shape)


def adaptive_average(rank: int) -> Callable[..., torch.Tensor]:
    def function(dtype: torch.dtype, x: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
        extents = x.shape[x.ndim - rank :]
        windows = [adaptive_windows(extent, count) for extent, count in zip(extents, counts, strict=True)]
        numbers = torch.arange(extents.numel()).view(extents)
        flat = x.reshape(-1, extents.numel()).T
        results = []
        for window in itertools.product(*windows):
            inside = numbers[tuple(slice(part.start, part.stop) for part in window)].reshape(-1)
            total = piled(dtype, flat.new_zeros(1, flat.shape[1]), torch.zeros_like(inside), flat[inside])[0]
            for part in window:
                total = rounded_once(
                    total / rounded_once(torch.tensor(float(len(part)), dtype=torch.float64), dtype), dtype
                )
            results.append(total)
        return torch.stack(results, -1).reshape(*x.shape[: x.ndim - rank], *counts)

    return function


def adaptive_windows(extent: int, count: int) -> list[range]:
    return [range(i * extent // count, -(-(i + 1) * extent // count)) for i in range(count)]


def adaptive_average_backward(rank: int) -> Callable[..., torch.Tensor]:
    def function(dtype: torch.dtype, grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        windows = [adaptive_windows(x.shape[d], grad.shape[d]) for d in range(-rank, 0)]
        delta = grad
        for place, parts in enumerate(windows):
            sizes = torch.tensor([len(part) for part in parts], dtype=torch.float64)
            delta = rounded_once(delta / rounded_once(sizes, dtype).view(-1, *[1] * (rank - 1 - place)), dtype)
        return windowed(dtype, x, rank, windows, delta)

    return function


def rounded_grid(
    dtype: torch.dtype, x: torch.Tensor, grid: torch.Tensor, mode: int, align: bool, volume: bool
) -> torch.Tensor:
    """The grid whose coordinates are those that the kernel has after rounding, so that each falls into the same cell.
    Images and volumes are reckoned in another order."""
    sizes = grid.new_tensor(list(reversed(x.shape[2:])))
    step = functools.partial(rounded_once, dtype=dtype)
    whole = sizes - 1 if align else sizes
    if volume:
        places = step(step(step(grid + 1) / 2) * whole) if align else step(step(step(grid + 1) * step(sizes)) - 1) / 2
    else:
        places = step(step(grid + 1) * step(whole / 2))
        places = places if align else step(places - 0.5)
    places = places.round() if mode == NEAREST else places + CELL
    return places * 2 / whole.clamp(min=1) - 1 if align else (2 * places + 1) / whole - 1


# torch's number for the mode.
NEAREST = 1
# Lest a coordinate on the edge of a cell falls into the one before.
CELL = 1e-9


def grid_sampler(rank: int) -> Callable[..., torch.Tensor]:
    sample = getattr(ATEN, f"grid_sampler_{rank}d").default

    def function(
        dtype: torch.dtype, x: torch.Tensor, grid: torch.Tensor, mode: int, padding: int, align: bool
    ) -> torch.Tensor:
        return sample(x, rounded_grid(dtype, x, grid, mode, align, rank == 3), mode, padding, align)  # type: ignore[no-any-return]

    return function


def grid_sampler_backward(rank: int) -> Callable[..., Any]:
    differentiate = getattr(ATEN, f"grid_sampler_{rank}d_backward").default

    def function(
        dtype: torch.dtype,
        grad: torch.Tensor,
        x: torch.Tensor,
        grid: torch.Tensor,
        mode: int,
        padding: int,
        align: bool,
        wanted: Sequence[bool],
    ) -> Any:
        return differentiate(
            grad, x, rounded_grid(dtype, x, grid, mode, align, rank == 3), mode, padding, align, wanted
        )

    return function


WINDOWS: Mapping[Any, Callable[..., Any]] = {
    ATEN.grid_sampler_2d.default: grid_sampler(2),
    ATEN.grid_sampler_3d.default: grid_sampler(3),
    ATEN.grid_sampler_2d_backward.default: grid_sampler_backward(2),
    ATEN.grid_sampler_3d_backward.default: grid_sampler_backward(3),
    ATEN.upsample_linear1d.default: upsampled(1),
    ATEN.upsample_bilinear2d.default: upsampled_image,
    ATEN.upsample_trilinear3d.default: upsampled(3),
    ATEN.upsample_bicubic2d.default: bicubic,
    ATEN.max_pool2d_with_indices_backward.default: max_pool_backward(2),
    ATEN.max_pool3d_with_indices_backward.default: max_pool_backward(3),
    ATEN.adaptive_max_pool2d_backward.default: max_pool_backward(2),
    ATEN.adaptive_max_pool3d_backward.default: max_pool_backward(3),
    ATEN.unfold_backward.default: unfolded_backward,
    ATEN.col2im.default: folded,
    ATEN.avg_pool2d_backward.default: averaged_backward(2),
    ATEN.avg_pool3d_backward.default: averaged_backward(3),
    ATEN._adaptive_avg_pool3d.default: adaptive_average(3),
    ATEN.reflection_pad1d_backward.default: pad_backward("reflect", 1),
    ATEN.reflection_pad2d_backward.default: pad_backward("reflect", 2),
    ATEN.reflection_pad3d_backward.default: pad_backward("reflect", 3),
    ATEN.replication_pad1d_backward.default: pad_backward("replicate", 1),
    ATEN.replication_pad2d_backward.default: pad_backward("replicate", 2),
    ATEN.replication_pad3d_backward.default: pad_backward("replicate", 3),
    ATEN._adaptive_avg_pool2d_backward.default: adaptive_average_backward(2),
    ATEN._adaptive_avg_pool3d_backward.default: adaptive_average_backward(3),
}
