"""PyTorch: what torch's own 16-bit kernels of a GPU round inside, in float64 on the CPU.

In: the dtype to round to, and the kernel's own arguments. An H200's kernels (torch 2.11) give the same bits, as
cases/h200.zip holds them. What computes element by element needs no entry: its formula is rounded step by step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pytest_probe.frameworks.torch.sequential_sums import piled, rounded
from pytest_probe.numerics.dtypes import numpy_dtype

_ATEN = torch.ops.aten
# Threads of a block of torch's Normalization.cuh, and of a warp.
_THREADS, _WARP = 512, 32
# More indices than these are sorted first, and their rows added up in float32 (Embedding.cu).
_FEW_INDICES = 3072
# Threads of a block of ScanUtils.cuh, as powers of 2: the fewest along a row, and all.
_LEAST_ACROSS, _ALL = 4, 9


def _batch_norm_backward(
    dtype: torch.dtype,
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    mean: Tensor | None,
    scale: Tensor | None,
    train: bool,
    eps: float,
    wanted: Sequence[bool],
) -> Any:
    """What passes from one thread of a warp to another is rounded, and so are the products whose sum is the weight's
    gradient: `Float2` takes 16-bit numbers. Tensors whose channels lie side by side go to another kernel.

    mean and scale are computed again: a GPU's forward keeps them in float32, the CPU's in the dtype of the weight."""
    if x.stride(1) == 1 or not x.numel():
        return _ATEN.native_batch_norm_backward.default(
            grad, x, weight, running_mean, running_var, mean, scale, train, eps, wanted
        )
    if train:
        rows = x.transpose(0, 1).flatten(1)
        mean, variance = rows.mean(-1), rows.var(-1, correction=0)
    else:
        assert running_mean is not None
        assert running_var is not None
        mean, variance = running_mean, running_var
    scale = (variance + eps).rsqrt()
    places, count = (1, -1, *[1] * (x.ndim - 2)), x.numel() // x.shape[1]
    away = x - mean.view(places)
    total, product = (_channel_sum(dtype, terms) for terms in (grad, rounded(grad * away, dtype)))
    found = grad
    if train:
        found = grad - (total / count).view(places) - away * (product / count * scale * scale).view(places)
    factor = scale if weight is None else scale * weight
    each = found * factor.view(places), product * scale, total
    return tuple(result if asked else None for result, asked in zip(each, wanted, strict=True))


def _channel_sum(dtype: torch.dtype, terms: Tensor) -> Tensor:
    """Of each channel: sums of threads, then halves of what is left, of which the second one is rounded."""
    terms = terms.flatten(2) if terms.ndim > 2 else terms.unsqueeze(-1)
    batch, channels, extent = terms.shape
    across = min(_THREADS, max(_WARP, 1 << (extent - 1).bit_length()))
    along = _THREADS // across
    padded = torch.nn.functional.pad(terms, (0, -extent % across, 0, 0, 0, -batch % along))
    threads = padded.view(-1, along, channels, padded.shape[-1] // across, across).sum((0, 3))
    left = threads.transpose(0, 1).reshape(channels, -1, _WARP)
    return _halved(dtype, _halved(dtype, left))


def _halved(dtype: torch.dtype, terms: Tensor) -> Tensor:
    while terms.shape[-1] > 1:
        first, second = terms.chunk(2, -1)
        terms = first + rounded(second, dtype)
    return terms.squeeze(-1)


def _group_norm(
    dtype: torch.dtype,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    batch: int,
    channels: int,
    extent: int,
    groups: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and scale of a group are tensors in its dtype, and the result is computed from these."""
    terms = x.reshape(batch, groups, -1)
    mean = rounded(terms.mean(-1, keepdim=True), dtype)
    scale = rounded((terms.var(-1, correction=0, keepdim=True) + eps).rsqrt(), dtype)
    found, places = ((terms - mean) * scale).view(x.shape), (1, channels, *[1] * (x.ndim - 2))
    found = found if weight is None else found * weight.view(places)
    found = found if bias is None else found + bias.view(places)
    return found, mean.squeeze(-1), scale.squeeze(-1)


def _avg_pool_backward(
    dtype: torch.dtype,
    grad: Tensor,
    x: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil: bool,
    counts_padding: bool,
    divisor: int | None,
) -> Tensor:
    """Each window's share is rounded, and the sum of shares once."""
    ones = torch.ones_like(x)
    numbers = _ATEN.avg_pool2d(ones, size, stride, padding, ceil, counts_padding, 1)
    divided_by = numbers / _ATEN.avg_pool2d(ones, size, stride, padding, ceil, counts_padding, divisor)
    shares = rounded(grad / divided_by, dtype) * divided_by
    return _ATEN.avg_pool2d_backward(shares, x, size, stride, padding, ceil, counts_padding, divisor)  # type: ignore[no-any-return]


def _softmax_backward(dtype: torch.dtype, grad: Tensor, output: Tensor, dim: int, _: torch.dtype) -> Tensor:
    """The products are a tensor."""
    products = rounded(grad * output, dtype)
    return products - output * products.sum(dim, keepdim=True)


def _smooth_l1_backward(
    dtype: torch.dtype, grad: Tensor, x: Tensor, target: Tensor, reduction: int, beta: float
) -> Tensor:
    """Each step is rounded, and so are the constants."""
    norm, border = rounded(x.new_tensor([1 / x.numel() if reduction == 1 else 1.0, beta]), dtype)
    away = rounded(x - target, dtype)
    near = rounded(rounded(norm * away, dtype) * grad, dtype) / border
    return torch.where(away.abs() < border, near, norm * grad * away.sign())


def _embedding_backward(
    dtype: torch.dtype, grad: Tensor, indices: Tensor, rows: int, padding: int, by_frequency: bool
) -> Any:
    """Rows of equal indices in a warp are added up in float32, and their sum to the 16-bit tensor."""
    if by_frequency or indices.numel() > _FEW_INDICES:
        return _ATEN.embedding_dense_backward.default(grad, indices, rows, padding, by_frequency)
    flat = indices.reshape(-1)
    chosen = (flat != padding).nonzero().reshape(-1)
    groups, owners = torch.unique(chosen // _WARP * rows + flat[chosen], return_inverse=True)
    terms = grad.reshape(-1, grad.shape[-1])[chosen]
    sums = terms.new_zeros(len(groups), terms.shape[-1]).index_add(0, owners, terms)
    return piled(dtype, grad.new_zeros(rows, grad.shape[-1]), groups % rows, rounded(sums, dtype))


def _scan(step: np.ufunc, neutral: float, to: torch.dtype, x: Tensor, dim: int, **_: Any) -> Tensor:
    """Each result of a running sum or product is rounded: one after another, or by halves along the last dimension."""
    if not x.numel() or not x.ndim:
        return x.clone()
    values = x.numpy().astype(numpy_dtype(str(to).removeprefix("torch.")))
    with np.errstate(over="ignore", invalid="ignore"):
        by_halves = x.ndim > 1 and dim % x.ndim == x.ndim - 1 and x.shape[-1] < x.numel()
        found = _scanned_by_halves(step, neutral, values) if by_halves else step.accumulate(values, axis=dim)
    return torch.from_numpy(found.astype(np.float64))


def _scanned_by_halves(step: np.ufunc, neutral: float, values: np.ndarray) -> np.ndarray:
    """Sklansky's scan of as many places as a block has, then of the next ones, onto what came out last."""
    length = values.shape[-1]
    rows = values.size // length
    across = (_ALL + (length - 1).bit_length() - (rows - 1).bit_length()) // 2
    across = min(max(across, _LEAST_ACROSS), _ALL)
    width = 2 << across
    padded = np.full((*values.shape[:-1], -(-length // width) * width), neutral, values.dtype)
    padded[..., :length] = values
    threads = np.arange(width // 2)
    for first in range(0, padded.shape[-1], width):
        block = padded[..., first : first + width]
        if first:
            block[..., 0] = step(block[..., 0], padded[..., first - 1])
        for level in range(across + 1):
            middle = ((threads >> level) << (level + 1)) | (1 << level)
            ends = middle + threads % (1 << level)
            block[..., ends] = step(block[..., ends], block[..., middle - 1])
    return padded[..., :length]


# Takes the dtype, then the kernel's arguments.
KERNELS_OF_GPU: Mapping[Any, Callable[..., Any]] = {
    _ATEN.native_batch_norm_backward.default: _batch_norm_backward,
    _ATEN.native_group_norm.default: _group_norm,
    _ATEN.avg_pool2d_backward.default: _avg_pool_backward,
    _ATEN._softmax_backward_data.default: _softmax_backward,
    _ATEN.smooth_l1_loss_backward.default: _smooth_l1_backward,
    _ATEN.embedding_dense_backward.default: _embedding_backward,
    _ATEN.cumsum.default: functools.partial(_scan, np.add, 0.0),
    _ATEN.cumprod.default: functools.partial(_scan, np.multiply, 1.0),
    _ATEN.logcumsumexp.default: functools.partial(_scan, np.logaddexp, -np.inf),
}
