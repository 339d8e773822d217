"""Calls of MindSpore's that no single API of torch's makes. Each has the name of the function of torch's that it is
most like, which is what the tables know."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def _extreme(of_all: Any, along: Any, input: Tensor, dim: int | None, keepdim: bool) -> tuple[Tensor, Tensor]:
    """Without a dimension MindSpore's index is always 0."""
    if dim is None or not input.dim():
        return of_all(input), torch.tensor(0)
    values, indices = along(input, dim, keepdim)
    return values, indices


max, min = partial(_extreme, torch.amax, torch.max), partial(_extreme, torch.amin, torch.min)


def index_select(input: Tensor, index: Tensor, dim: Any) -> Tensor:
    """With an index of any shape, whose dimensions take the place of `dim`."""
    dim = int(dim) % input.dim()
    found = torch.index_select(input, dim, index.reshape(-1))
    return found.reshape(*input.shape[:dim], *index.shape, *input.shape[dim + 1 :])


def cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None, **given: Any) -> Tensor:
    """`mindspore.ops` gives the weights of classes a gradient, torch none."""
    if weight is None:
        return functional.cross_entropy(input, _classes(target), **given)
    return _weighted(torch.log_softmax(input, 1 if input.dim() > 1 else 0), target, weight, **given)


def nll_loss(input: Tensor, target: Tensor, weight: Tensor | None, **given: Any) -> Tensor:
    if weight is None:
        return functional.nll_loss(input, _classes(target), **given)
    return _weighted(input, target, weight, **given)


def _weighted(
    logarithms: Tensor, target: Tensor, weight: Tensor, ignore_index: int, reduction: str, label_smoothing: float = 0.0
) -> Tensor:
    dim = 1 if logarithms.dim() > 1 else 0
    count = logarithms.shape[dim]
    weighted = logarithms * weight.reshape(-1, *(1 for _ in logarithms.shape[dim + 1 :]))
    if target.is_floating_point():
        share = target * (1 - label_smoothing) + label_smoothing / count
        losses, number = -(weighted * share).sum(dim), torch.tensor(logarithms.numel() / count)
    else:
        kept = target != ignore_index
        classes = torch.where(kept, target, 0).long()
        chosen = weighted.gather(dim, classes.unsqueeze(dim)).squeeze(dim)
        mixed = (1 - label_smoothing) * chosen + label_smoothing / count * weighted.sum(dim)
        losses, number = -mixed * kept, (weight[classes] * kept).sum()
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / number


def _classes(target: Tensor) -> Tensor:
    """The target of a loss: classes, or a share of each."""
    return target if target.is_floating_point() else target.long()


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    pad_mode: str,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Tensor:
    """The modes "pad", "valid", and "same": as many steps as the input has strides, with the odd place behind."""
    if pad_mode.lower() == "same":
        ahead = map(_missing, input.shape[2:], weight.shape[2:], _both(stride), _both(dilation))
        input = functional.pad(input, [place for each in reversed([*ahead]) for place in (each // 2, each - each // 2)])
    return functional.conv2d(input, weight, bias, stride, padding, dilation, groups)


def _missing(size: int, kernel: int, stride: int, dilation: int) -> int:
    """The places around a dimension that a window needs beyond it."""
    beyond = (-(-size // stride) - 1) * stride + dilation * (kernel - 1) + 1 - size
    return beyond if beyond > 0 else 0


def _both(value: int | Sequence[int]) -> tuple[int, int]:
    """The value for each dimension of an image."""
    return (value, value) if isinstance(value, int) else (value[0], value[1])
