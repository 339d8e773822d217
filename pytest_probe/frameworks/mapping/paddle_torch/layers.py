"""Convolutions, pooling, norms, attention and losses, where no single API of torch's makes Paddle's calls. Each
function takes Paddle's arguments, and torch's tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch

from pytest_probe.frameworks.mapping.paddle_torch import ints, less_than_one, refused

# torch.Tensor: what most of its functions return is not said.
Tensor: TypeAlias = Any
F = torch.nn.functional


def _channels(data_format: str | None) -> bool:
    """Are the channels last?"""
    return data_format is not None and not data_format.startswith("NC")


def _first(x: Tensor, last: bool) -> Tensor:
    return x.movedim(-1, 1) if last else x


def _back(x: Tensor, last: bool) -> Tensor:
    return x.movedim(1, -1) if last else x


def _many(value: Any, count: int) -> list[int]:
    found = ints(value)
    return found * count if len(found) == 1 else found


def _padding(
    padding: Any, count: int, size: list[int], kernel: list[int], stride: list[int], dilation: list[int]
) -> list[int]:
    """What is added before and behind each dimension, as (before, behind, before, behind, ...)."""
    if isinstance(padding, str):
        if padding.upper() == "VALID":
            return [0] * (2 * count)
        found = list[int]()
        for place in range(count):
            results = -(-size[place] // stride[place])
            whole = max((results - 1) * stride[place] + dilation[place] * (kernel[place] - 1) + 1 - size[place], 0)
            found += [whole // 2, whole - whole // 2]
        return found
    if isinstance(padding, (list, tuple)) and padding and isinstance(padding[0], (list, tuple)):
        pairs = [ints(pair) for pair in padding]
        if len(pairs) == count + 2:
            pairs = pairs[2:] if not any(map(any, pairs[:2])) else pairs[1:-1]
        return [each for pair in pairs for each in pair]
    found = ints(padding)
    if len(found) == 2 * count:
        return found
    return [each for size in (found * count if len(found) == 1 else found) for each in (size, size)]


def _is_even(padding: list[int]) -> bool:
    return padding[::2] == padding[1::2]


def _padded(x: Tensor, padding: list[int], value: float = 0.0) -> Tensor:
    pairs = [padding[place : place + 2] for place in range(0, len(padding), 2)]
    return F.pad(x, [each for pair in reversed(pairs) for each in pair], value=value)


def _convolved(
    count: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    data_format: str,
) -> Tensor:
    last = _channels(data_format)
    moved, steps, apart = _first(x, last), _many(stride, count), _many(dilation, count)
    if isinstance(padding, str) and padding.upper() == "SAME":
        apart = [1] * count
    around = _padding(padding, count, list(moved.shape[2:]), list(weight.shape[2:]), steps, apart)
    if not _is_even(around):
        moved, around = _padded(moved, around), [0] * (2 * count)
    function = (F.conv1d, F.conv2d, F.conv3d)[count - 1]
    return _back(function(moved, weight, bias, steps, around[::2], apart, groups), last)


conv1d, conv2d, conv3d = (partial(_convolved, count) for count in (1, 2, 3))


def _transposed(
    count: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
    output_size: Any,
    data_format: str,
) -> Tensor:
    last = _channels(data_format)
    moved, steps, apart = _first(x, last), _many(stride, count), _many(dilation, count)
    if isinstance(padding, str):
        raise refused(f"padding={padding!r}")
    around = _padding(padding, count, list(moved.shape[2:]), list(weight.shape[2:]), steps, apart)
    if not _is_even(around):
        raise refused("padding that differs before and behind")
    further = _many(output_padding, count)
    if output_size is not None:
        least = [
            (moved.shape[2 + place] - 1) * steps[place]
            - 2 * around[2 * place]
            + apart[place] * (weight.shape[2 + place] - 1)
            + 1
            for place in range(count)
        ]
        further = [size - each for size, each in zip(_many(output_size, count), least, strict=True)]
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[count - 1]
    return _back(function(moved, weight, bias, steps, around[::2], further, groups, apart), last)


conv1d_transpose, conv2d_transpose, conv3d_transpose = (partial(_transposed, count) for count in (1, 2, 3))


def _largest(
    count: int,
    x: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    return_mask: bool,
    ceil_mode: bool,
    data_format: str = "NC",
) -> Any:
    last = _channels(data_format)
    moved, kernel = _first(x, last), _many(kernel_size, count)
    steps = kernel if stride is None else _many(stride, count)
    around = _padding(padding, count, list(moved.shape[2:]), kernel, steps, [1] * count)
    if not _is_even(around):
        if return_mask:
            raise refused("padding that differs before and behind")
        moved, around = _padded(moved, around, -torch.inf), [0] * (2 * count)
    _check_windows(moved, kernel, steps, around, ceil_mode)
    function: Callable[..., Any] = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[count - 1]
    found = function(moved, kernel, steps, around[::2], 1, ceil_mode, return_mask)
    if return_mask:
        return _back(found[0], last), _back(found[1], last).to(torch.int32)
    return _back(found, last)


def _check_windows(x: Tensor, kernel: list[int], steps: list[int], around: list[int], ceil_mode: bool) -> None:
    """Raises Unsupported for a last window that begins behind the tensor: torch leaves it out."""
    for place, size in enumerate(x.shape[2:]):
        span = size + sum(around[2 * place : 2 * place + 2])
        last = -(-(span - kernel[place]) // steps[place]) * steps[place]
        if ceil_mode and last >= size + around[2 * place]:
            raise refused("ceil_mode where the last window begins behind the tensor")


max_pool1d, max_pool2d, max_pool3d = (partial(_largest, count) for count in (1, 2, 3))


def _averaged(
    count: int,
    x: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    exclusive: bool,
    data_format: str,
) -> Tensor:
    last = _channels(data_format)
    moved, kernel = _first(x, last), _many(kernel_size, count)
    steps = kernel if stride is None else _many(stride, count)
    around = _padding(padding, count, list(moved.shape[2:]), kernel, steps, [1] * count)
    if not _is_even(around):
        raise refused("padding that differs before and behind")
    _check_windows(moved, kernel, steps, around, ceil_mode)
    function: Callable[..., Any] = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[count - 1]
    return _back(function(moved, kernel, steps, around[::2], ceil_mode, not exclusive), last)


avg_pool2d, avg_pool3d = partial(_averaged, 2), partial(_averaged, 3)


def _adapted(function: Callable[..., Tensor], x: Tensor, output_size: Any, data_format: str) -> Tensor:
    last = _channels(data_format)
    return _back(function(_first(x, last), output_size), last)


adaptive_avg_pool2d = partial(_adapted, F.adaptive_avg_pool2d)
adaptive_avg_pool3d = partial(_adapted, F.adaptive_avg_pool3d)


def adaptive_max_pool2d(x: Tensor, output_size: Any, return_mask: bool) -> Any:
    values, places = F.adaptive_max_pool2d(x, output_size, True)
    return (values, places.to(torch.int32)) if return_mask else values


_LINEAR = ("linear", "bilinear", "trilinear", "bicubic")


def interpolate(
    x: Tensor, size: Any, scale_factor: Any, mode: str, align_corners: bool, align_mode: int, data_format: str | None
) -> Tensor:
    if mode in _LINEAR and align_mode == 1 and not align_corners and mode != "bicubic":
        raise refused("align_mode=1")
    last = _channels(data_format)
    moved = _first(x, last)
    given: dict[str, Any] = {}
    if size is not None:
        given["size"] = ints(size)
    elif isinstance(scale_factor, (list, tuple, torch.Tensor)):
        given["scale_factor"] = [float(each) for each in scale_factor]
    else:
        given["scale_factor"] = float(scale_factor)
    if mode in _LINEAR:
        given["align_corners"] = align_corners
    elif mode == "nearest" and align_corners:
        raise refused("align_corners=True")
    return _back(F.interpolate(moved, mode=mode, **given), last)


# Norms.


def layer_norm(x: Tensor, normalized_shape: Any, weight: Any, bias: Any, epsilon: float) -> Tensor:
    shape = ints(normalized_shape)
    scale, shift = (None if each is None else each.reshape(shape) for each in (weight, bias))
    return F.layer_norm(x, shape, scale, shift, epsilon)


def batch_norm(
    x: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Any,
    bias: Any,
    training: bool,
    momentum: float,
    epsilon: float,
    data_format: str,
    use_global_stats: bool | None,
) -> Tensor:
    last = _channels(data_format) and x.dim() > 2
    moved = _first(x, last)
    if not training and use_global_stats is False:
        raise refused("use_global_stats=False")
    of_batch = training if use_global_stats is None else not use_global_stats
    if not of_batch:
        return _back(F.batch_norm(moved, running_mean, running_var, weight, bias, False, 0.0, epsilon), last)
    over = [0, *range(2, moved.dim())]
    with torch.no_grad():
        # Paddle keeps the variance of the batch itself, and its momentum is what stays.
        for kept, found in ((running_mean, moved.mean(over)), (running_var, moved.var(over, correction=0))):
            kept.copy_(momentum * kept + (1 - momentum) * found)
    return _back(F.batch_norm(moved, None, None, weight, bias, True, 0.0, epsilon), last)


def group_norm(x: Tensor, num_groups: int, epsilon: float, weight: Any, bias: Any, data_format: str) -> Tensor:
    last = _channels(data_format)
    return _back(F.group_norm(_first(x, last), num_groups, weight, bias, epsilon), last)


# Attention.


def attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Any, dropout_p: float, is_causal: bool, training: bool
) -> Tensor:
    # Heads stand before the positions there.
    q, k, v = (each.transpose(1, 2) for each in (query, key, value))
    dropped = dropout_p if training else 0.0
    grouped = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, attn_mask, dropped, is_causal, enable_gqa=grouped).transpose(1, 2)


# Losses and distances.


def _reduced(loss: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()


def cross_entropy(
    input: Tensor,
    label: Tensor,
    weight: Any,
    ignore_index: int,
    reduction: str,
    soft_label: bool,
    axis: int,
    use_softmax: bool,
) -> Tensor:
    if soft_label:
        if weight is not None:
            raise refused("weight with soft labels")
        # Of soft labels there is no gradient.
        logs = F.log_softmax(input, axis) if use_softmax else torch.log(input)
        return _reduced(-(label.detach() * logs).sum(axis, keepdim=True), reduction)
    labels = (label.squeeze(axis) if label.dim() == input.dim() else label).long()
    scores = input.movedim(axis, 1) if input.dim() > 1 else input
    logs = F.log_softmax(scores, 1 if input.dim() > 1 else 0) if use_softmax else torch.log(scores)
    if weight is None:
        loss = F.nll_loss(logs, labels, ignore_index=ignore_index, reduction=reduction)
    else:
        # The weights have gradients, too.
        kept = labels != ignore_index
        known = torch.where(kept, labels, 0)
        weights = weight[known] * kept
        loss = -logs.gather(1, known.unsqueeze(1)).squeeze(1) * weights
        loss = loss.sum() / weights.sum() if reduction == "mean" else _reduced(loss, reduction)
    return loss.unsqueeze(axis) if reduction == "none" and label.dim() == input.dim() else loss


def softmax_with_cross_entropy(
    logits: Tensor,
    label: Tensor,
    soft_label: bool,
    ignore_index: int,
    numeric_stable_mode: bool,
    return_softmax: bool,
    axis: int,
) -> Any:
    loss = cross_entropy(logits, label, None, ignore_index, "none", soft_label, axis, True)
    loss = loss if loss.dim() == logits.dim() else loss.unsqueeze(axis)
    # A gradient of the softmax counts for nothing there.
    return (loss, F.softmax(logits, axis).detach()) if return_softmax else loss


def smooth_l1_loss(input: Tensor, label: Tensor, reduction: str, delta: float, is_huber: bool) -> Tensor:
    loss = F.huber_loss(input, label, "none", float(np.float32(delta)))
    return _reduced(loss if is_huber else loss / delta, reduction)


def binary_cross_entropy(input: Tensor, label: Tensor, weight: Any, reduction: str) -> Tensor:
    loss = F.binary_cross_entropy(input, label, reduction="none")
    return _reduced(loss if weight is None else loss * weight, reduction)


def binary_cross_entropy_with_logits(
    logit: Tensor, label: Tensor, weight: Any, reduction: str, pos_weight: Any
) -> Tensor:
    loss = F.binary_cross_entropy_with_logits(logit, label, reduction="none", pos_weight=pos_weight)
    return _reduced(loss if weight is None else loss * weight, reduction)


def sigmoid_focal_loss(
    logit: Tensor, label: Tensor, normalizer: Any, alpha: float, gamma: float, reduction: str
) -> Tensor:
    probability = torch.sigmoid(logit)
    # Of the label the entropy has no gradient there.
    entropy = F.binary_cross_entropy_with_logits(logit, label.detach(), reduction="none")
    right = probability * label + (1 - probability) * (1 - label)
    loss = (alpha * label + (1 - alpha) * (1 - label)) * (1 - right) ** gamma * entropy
    return _reduced(loss if normalizer is None else loss / normalizer, reduction)


def cosine_similarity(x1: Tensor, x2: Tensor, axis: int, eps: float) -> Tensor:
    product = (x1 * x2).sum(axis)
    lengths = torch.square(x1).sum(axis) * torch.square(x2).sum(axis)
    return product / torch.sqrt(torch.clamp(lengths, min=eps * eps))


def label_smooth(label: Tensor, prior_dist: Any, epsilon: float) -> Tensor:
    spread = 1.0 / label.shape[-1] if prior_dist is None else prior_dist
    return less_than_one(epsilon) * label + epsilon * spread
