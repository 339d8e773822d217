"""PyTorch: batch normalisation of tensors in no memory format's order, which torch's own CPU takes element by element.

Written as it runs: each takes the dtype to round to and then the kernel's own arguments, in float64.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from pytest_probe.frameworks.torch.cpu16.sequential import rounded_once

# The memory format with channels last, by rank; others have none.
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def all_contiguous(*tensors: torch.Tensor) -> bool:
    """Are the tensors all dense in the order of their dimensions, or all with channels last? Where sizes of 1 make them
    both, kernels go by the strides."""
    form = FORMATS.get(tensors[0].ndim, torch.contiguous_format)
    dense = all(x.is_contiguous() or x.is_contiguous(memory_format=form) for x in tensors)
    return dense and len({suggest_memory_format(x) for x in tensors}) == 1


def scattered(*tensors: torch.Tensor | None) -> bool:
    """Do some tensors' elements lie apart?"""
    return any(x is not None and not x.is_contiguous() for x in tensors)


def channelwise(x: torch.Tensor) -> tuple[list[int], tuple[int, ...]]:
    """The dimensions that a channel's statistics are taken over, and the shape in which they stand beside x."""
    return [dim for dim in range(x.ndim) if dim != 1], (1, -1, *[1] * (x.ndim - 2))


def batch_norm(
    dtype: torch.dtype,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The mean is rounded before it is used, the variance is not; each step of the normalisation is."""
    step = functools.partial(rounded_once, dtype=dtype)
    over, places = channelwise(x)
    if training:
        count = x.numel() // x.shape[1]
        mean = step(x.mean(over))
        squares = (x - mean.view(places)).square().sum(over)
        scale = step((squares / count + eps).rsqrt())
        for running, found in ((running_mean, mean), (running_var, squares / (count - 1))):
            if running is not None:
                running.copy_(step(momentum * found + (1 - momentum) * running))
        saved = mean, scale
    else:
        assert running_mean is not None
        assert running_var is not None
        mean, scale = running_mean, step(1 / step(step(running_var + eps).sqrt()))
        saved = x.new_zeros(0), x.new_zeros(0)
    out = step(step(x - mean.view(places)) * scale.view(places))
    out = out if weight is None else step(out * weight.view(places))
    return (out if bias is None else out + bias.view(places)), *saved


def batch_norm_backward(
    dtype: torch.dtype,
    grad: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    mean: torch.Tensor | None,
    scale: torch.Tensor | None,
    training: bool,
    eps: float,
    wanted: Sequence[bool],
) -> Any:
    if all_contiguous(x, grad):
        return NotImplemented
    step = functools.partial(rounded_once, dtype=dtype)
    over, places = channelwise(x)
    count = x.numel() // x.shape[1]
    if not training:
        assert running_mean is not None
        assert running_var is not None
        mean, scale = running_mean, step((running_var + eps).rsqrt())
    assert mean is not None
    assert scale is not None
    shifted, wide = step(x - mean.view(places)), scale.view(places)
    total, dot = grad.sum(over), step(shifted * grad).sum(over)
    # float16's sum stays in float32 there.
    total = step(total) if dtype is torch.bfloat16 else total
    slope = grad
    if training:
        whole = step(x.new_tensor(float(count)))
        along = step(step(step(step(dot) * scale) * scale) / whole)
        slope = step(step(grad - step(total / whole).view(places)) - step(shifted * along.view(places)))
    slope = step(slope * wide)
    slope = slope if weight is None else slope * weight.view(places)
    found = (slope, dot * scale, total)
    return tuple(part if asked else None for part, asked in zip(found, wanted, strict=True))
