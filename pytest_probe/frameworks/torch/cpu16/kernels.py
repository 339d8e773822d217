"""PyTorch: 16-bit kernels of torch's own CPU that round inside: softmax, losses, normalisations, gates.

Written as they run: each takes the dtype to round to and then the kernel's own arguments, in float64.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pytest_probe.frameworks.torch.cpu16.row_sums import row_sum
from pytest_probe.frameworks.torch.cpu16.sequential import cascade, chain, lanes, rounded_once

ATEN = torch.ops.aten


def glu_backward(dtype: torch.dtype, grad: Tensor, x: Tensor, dim: int) -> Tensor:
    first, second = x.chunk(2, dim)
    gate = rounded_once(second.sigmoid(), dtype)
    return torch.cat([gate * grad, (1 - gate) * gate * first * grad], dim)


def log_softmax(dtype: torch.dtype, x: Tensor, dim: int, to_float: bool) -> Any:
    """Along the last dimension each row's sum, and its logarithm, are rounded."""
    if not x.ndim or dim % x.ndim != x.ndim - 1:
        return NotImplemented
    below = x - x.amax(-1, keepdim=True)
    sums = rounded_once(below.exp().sum(-1, keepdim=True), dtype)
    return below - rounded_once(sums.log(), dtype)


def nll(dtype: torch.dtype, x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignored: int) -> Any:
    if x.ndim == 1:
        return nll(dtype, x[None], target.reshape(1), weight, reduction, ignored)
    if reduction == 0:
        return NotImplemented
    kept = (target != ignored).reshape(-1)
    places = kept.nonzero().reshape(-1)
    aims = torch.where(target == ignored, 0, target)
    terms = -x.gather(1, aims.unsqueeze(1)).reshape(-1)[kept]
    weights = torch.ones_like(terms) if weight is None else weight[aims.reshape(-1)[kept]]
    total = cascade(dtype, rounded_once(terms * weights, dtype), places, len(kept))
    if weight is None:
        whole = rounded_once(terms.new_tensor(float(len(terms))), dtype)
    else:
        whole = cascade(dtype, weights, places, len(kept))
    return (total / whole if reduction == 1 else total), whole


def nll_backward(
    dtype: torch.dtype,
    grad: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignored: int,
    whole: Tensor,
) -> Any:
    if x.ndim == 1:
        found = nll_backward(dtype, grad, x[None], target.reshape(1), weight, reduction, ignored, whole)
        return found if found is NotImplemented else found[0]
    if reduction == 0:
        return NotImplemented
    each = -(rounded_once(grad / whole, dtype) if reduction == 1 else grad)
    kept = target != ignored
    aims = torch.where(kept, target, 0)
    gains = torch.where(kept, each if weight is None else rounded_once(weight[aims] * each, dtype), 0)
    return torch.zeros_like(x).scatter_(1, aims.unsqueeze(1), gains.unsqueeze(1))


def softmax(dtype: torch.dtype, x: Tensor, dim: int, to_float: bool) -> Any:
    """Along another dimension than the last the powers that no vector holds are rounded."""
    if not x.ndim or dim % x.ndim == x.ndim - 1:
        return NotImplemented
    result = ATEN._softmax.default(x, dim, False)
    inner = x.shape[dim % x.ndim + 1 :].numel()
    rest = inner % lanes()
    flat = x.reshape(-1, x.shape[dim], inner)[..., inner - rest :].transpose(1, 2)
    powers = (flat - flat.amax(-1, keepdim=True)).exp()
    # Whole vectors keep float32 powers; what is left over goes through the dtype.
    quotients = rounded_once(powers, dtype) / powers.sum(-1, keepdim=True)
    result.view(-1, x.shape[dim], inner)[..., inner - rest :] = quotients.transpose(1, 2)
    return result


def layer_norm_backward(
    dtype: torch.dtype,
    grad: Tensor,
    x: Tensor,
    shape: Sequence[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """Gradients of weight and bias are added up row by row, each thread's rows for themselves."""
    exact = ATEN.native_layer_norm_backward.default(grad, x, shape, mean, rstd, weight, bias, wanted)
    sums = [row_sum(dtype, terms.reshape(-1, *shape)) for terms in (grad * (x - mean) * rstd, grad)]
    return (exact[0], *(found if asked else None for found, asked in zip(sums, wanted[1:], strict=True)))


def batch_norm(
    dtype: torch.dtype,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Statistics are rounded before they are used; in bfloat16 each step towards them as well."""
    # Other layouts go to another kernel, which rounds at every element.
    if not training:
        return NotImplemented
    step = functools.partial(rounded_once, dtype=dtype) if dtype is torch.bfloat16 else (lambda values: values)
    over, places = [dim for dim in range(x.ndim) if dim != 1], (1, -1, *[1] * (x.ndim - 2))
    count = x.new_tensor(float(x.numel() // x.shape[1]))
    mean = step(x.mean(over))
    squares = step((x - mean.view(places)).square().sum(over))
    part, rest = step(x.new_tensor(momentum)), step(x.new_tensor(1 - momentum))
    if running_mean is not None:
        running_mean.copy_(rounded_once(step(part * mean) + step(rest * running_mean), dtype))
    if running_var is not None:
        running_var.copy_(rounded_once(part * step(squares / step(count - 1)) + step(rest * running_var), dtype))
    mean, scale = rounded_once(mean, dtype), rounded_once((step(squares / step(count)) + eps).rsqrt(), dtype)
    out = (x - mean.view(places)) * scale.view(places)
    out = out if weight is None else out * weight.view(places)
    return out if bias is None else out + bias.view(places), mean, scale


def batch_norm_legit(dtype: torch.dtype, x: Tensor, weight: Any, bias: Any, *rest: Any) -> Any:
    """The same by another name: with running statistics, or without."""
    statistics = rest if len(rest) == 5 else (None, None, *rest)
    return batch_norm(dtype, x, weight, bias, *statistics)


def batch_norm_updating(
    dtype: torch.dtype, x: Tensor, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> Any:
    reserved = x.new_zeros(0, dtype=torch.uint8)
    return (*batch_norm(dtype, x, weight, bias, mean, var, True, momentum, eps), reserved)


def renorm(dtype: torch.dtype, x: Tensor, p: float, dim: int, largest: float) -> Tensor:
    """The factor is rounded before it is multiplied with."""
    over = [place for place in range(x.ndim) if place != dim % x.ndim]
    norm = torch.linalg.vector_norm(x, p, over, keepdim=True)
    # 1e-7 is the kernel's own.
    return x * rounded_once(torch.where(norm > largest, largest / (norm + 1e-7), 1.0), dtype)


def embedding_renorm(dtype: torch.dtype, x: Tensor, indices: Tensor, largest: float, p: float) -> Tensor:
    """Norm and factor are rounded."""
    used = torch.unique(indices)
    norm = rounded_once(torch.linalg.vector_norm(x[used], p, 1, keepdim=True), dtype)
    factor = torch.where(norm > largest, rounded_once(largest / (norm + 1e-7), dtype), 1.0)
    return x.index_copy_(0, used, x[used] * factor)


def histc(dtype: torch.dtype, x: Tensor, bins: int = 100, low: float = 0, high: float = 0) -> Tensor:
    """The bin of a value is found step by step; a count stays where 1 is less than half a unit."""
    if low == high:
        low, high = (float(x.min()), float(x.max())) if x.numel() else (0.0, 1.0)
    if low == high:
        low, high = low - 1, high + 1
    step = functools.partial(rounded_once, dtype=dtype)
    first, last = step(x.new_tensor(low)), step(x.new_tensor(high))
    inside = x[(x >= first) & (x <= last)]
    places = step(step(step(inside - first) * bins) / step(last - first)).long().clamp(max=bins - 1)
    # At 2 / eps a count is so large that 1 more rounds away.
    return torch.bincount(places, minlength=bins).to(x.dtype).clamp(max=2 / torch.finfo(dtype).eps)


def trilinear(
    dtype: torch.dtype,
    x: Tensor,
    y: Tensor,
    z: Tensor,
    missing_x: Sequence[int],
    missing_y: Sequence[int],
    missing_z: Sequence[int],
    summed: Sequence[int],
    unrolled: int = 1,
) -> Tensor:
    """Products of two, then of three factors, for one slice after another."""
    for dim in range(x.ndim + len(missing_x)):
        x = x.unsqueeze(dim) if dim in missing_x else x
        y = y.unsqueeze(dim) if dim in missing_y else y
        z = z.unsqueeze(dim) if dim in missing_z else z
    early = [dim for dim in summed if z.shape[dim] == 1 and dim in missing_z]
    late = [dim for dim in summed if dim not in early]
    slices = max(x.shape[unrolled], y.shape[unrolled], z.shape[unrolled])

    def part(tensor: Tensor, place: int) -> Tensor:
        return tensor.narrow(unrolled, place if tensor.shape[unrolled] > 1 else 0, 1)

    made = []
    for place in range(slices):
        product = part(x, place) * part(y, place)
        product = rounded_once(product.sum(early, keepdim=True) if early else product, dtype)
        product = product * part(z, place)
        made.append(rounded_once(product.sum(late, keepdim=True) if late else product, dtype))
    total = chain(dtype, torch.stack(made, -1)) if unrolled in summed else torch.cat(made, unrolled)
    for dim in sorted(summed, reverse=True):
        total = total.squeeze(dim)
    return total


KERNELS: Mapping[Any, Callable[..., Any]] = {
    ATEN.glu_backward.default: glu_backward,
    ATEN.native_layer_norm_backward.default: layer_norm_backward,
    ATEN.native_batch_norm.default: batch_norm,
    ATEN._native_batch_norm_legit.default: batch_norm_legit,
    ATEN._native_batch_norm_legit.no_stats: batch_norm_legit,
    ATEN._batch_norm_with_update.default: batch_norm_updating,
    ATEN.renorm.default: renorm,
    ATEN.embedding_renorm_.default: embedding_renorm,
    ATEN.histc.default: histc,
    ATEN._trilinear.default: trilinear,
    ATEN._softmax.default: softmax,
    ATEN._log_softmax.default: log_softmax,
    ATEN.nll_loss_forward.default: nll,
    ATEN.nll_loss2d_forward.default: nll,
    ATEN.nll_loss_backward.default: nll_backward,
    ATEN.nll_loss2d_backward.default: nll_backward,
}
