"""PyTorch: sums that 16-bit kernels take term by term, each sum rounded to 16 bit, in float64.

A long one of these loses so much that nothing general bounds its error: 300 ones in bfloat16 add up to 256. So the much
used ones are written down, as torch's own CPU takes them, and those of atomic additions, which other devices make. Of
3,610 outputs of dumps in bfloat16, 46 pass by them alone, 38 of these gradients of layer_norm's weight and bias; with
3,000 rows they would be errors. Fused attention, a sum over blocks of keys, is in `flash_on_cpu`: general rules would
let a wrong scale pass. Other such kernels are warnings (`narrow_sums` in classes.yaml).

In: the dtype to round to. Out: what stands in for each kernel, which takes the kernel's own arguments.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pytest_probe.frameworks.torch.attention import (
    FLASH_BACKWARD,
    FLASH_FORWARD,
    flash_backward_on_cpu,
    flash_forward_on_cpu,
)
from pytest_probe.numerics import kernel
from pytest_probe.numerics.dtypes import float_format, numpy_dtype

_ATEN = torch.ops.aten
Functions = Mapping[Any, Callable[..., Any]]
_Adding = Callable[[Tensor, Tensor, Tensor], Tensor]


@functools.cache
def sums_of_cpu(dtype: torch.dtype) -> Functions:
    """Those of torch's own CPU; none for a dtype of more or fewer than 16 bits."""
    return sums_rounded_to(dtype) if dtype.itemsize == 2 else {}


def sums_rounded_to(dtype: torch.dtype) -> Functions:
    """The same for any dtype: float64 rounds nothing."""
    known: Functions = {
        FLASH_FORWARD: flash_forward_on_cpu,
        FLASH_BACKWARD: flash_backward_on_cpu,
        _ATEN.native_layer_norm_backward.default: _layer_norm_backward,
        _ATEN.embedding_dense_backward.default: _embedding_backward,
        _ATEN.nll_loss_forward.default: _nll_loss,
        _ATEN.nll_loss2d_forward.default: _nll_loss,
        _ATEN.put.default: _put,
        _ATEN.index_put.default: _index_put,
        _ATEN._unsafe_index_put.default: _index_put,
        _ATEN.max_pool2d_with_indices_backward.default: functools.partial(_max_pool_backward, 2),
        _ATEN.max_pool3d_with_indices_backward.default: functools.partial(_max_pool_backward, 3),
        _ATEN.adaptive_max_pool2d_backward.default: functools.partial(_max_pool_backward, 2),
        _ATEN.adaptive_max_pool3d_backward.default: functools.partial(_max_pool_backward, 3),
    }
    put = _in_place(functools.partial(_index_put, dtype=dtype))
    in_place = {_ATEN.index_put_.default: put, _ATEN._index_put_impl_.default: put}
    return {**{func: functools.partial(function, dtype=dtype) for func, function in known.items()}, **in_place}


@functools.cache
def atomic_sums(dtype: torch.dtype, order: int = 0) -> Functions:
    """Sums that the CPU takes in float32, and other devices by atomic additions to the 16-bit tensor, in any order.
    order: of the terms, 0 as they stand."""
    if dtype.itemsize != 2:
        return {}
    add = functools.partial(_piled_in_order, order, dtype)
    rows, places = functools.partial(_index_add, dtype=dtype, add=add), functools.partial(_scatter_add, add=add)
    return {
        _ATEN.index_add.default: rows,
        _ATEN.index_add_.default: _in_place(rows),
        _ATEN.scatter_add.default: places,
        _ATEN.scatter_add_.default: _in_place(places),
    }


def _in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for the version that writes to its first argument."""

    def written(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        result = function(x, *args, **kwargs)
        return result if result is NotImplemented else x.copy_(result)

    return written


def _layer_norm_backward(
    grad: Tensor,
    x: Tensor,
    shape: Sequence[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    wanted: Sequence[bool],
    *,
    dtype: torch.dtype,
) -> tuple[Tensor | None, ...]:
    """Gradients of weight and bias are added up row by row, each thread's rows for themselves."""
    exact = _ATEN.native_layer_norm_backward.default(grad, x, shape, mean, rstd, weight, bias, wanted)
    sums = [_row_sum(dtype, terms.reshape(-1, *shape)) for terms in (grad * (x - mean) * rstd, grad)]
    return (exact[0], *(found if asked else None for found, asked in zip(sums, wanted[1:], strict=True)))


def _row_sum(dtype: torch.dtype, rows: Tensor) -> Tensor:
    """The sum of rows, one in each place of the first dimension, as threads share them out. It is not yet rounded."""
    share = -(-len(rows) // min(torch.get_num_threads(), len(rows)))
    owners = torch.arange(len(rows)) // share
    return piled(dtype, rows.new_zeros(int(owners[-1]) + 1, *rows.shape[1:]), owners, rows).sum(0)


def _nll_loss(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignored: int, *, dtype: torch.dtype
) -> Any:
    """The losses, and the weights that they are divided by, are added up on levels."""
    if reduction == 0:
        return NotImplemented
    rows, target = (x[None], target.reshape(1)) if x.ndim == 1 else (x, target)
    kept = (target != ignored).reshape(-1)
    places = kept.nonzero().reshape(-1)
    aims = torch.where(target == ignored, 0, target)
    terms = -rows.gather(1, aims.unsqueeze(1)).reshape(-1)[kept]
    weights = torch.ones_like(terms) if weight is None else weight[aims.reshape(-1)[kept]]
    total = _cascade(dtype, rounded(terms * weights, dtype), places, len(kept))
    # Without weights the terms are counted.
    count = rounded(terms.new_tensor(float(len(terms))), dtype)
    whole = count if weight is None else _cascade(dtype, weights, places, len(kept))
    return (total / whole if reduction == 1 else total), whole


def _cascade(dtype: torch.dtype, terms: Tensor, places: Tensor, count: int) -> Tensor:
    """The sum of terms at some of `count` places on eight levels of 16 places, or a higher power of 2: what has come
    together up to every 16th place goes to the next level as one."""
    bits = max(4, math.ceil(math.log2(max(count, 1))) // 8)
    rests = []
    for level in range(8):
        full = ((places >> bits * level) & ((1 << bits) - 1)) == 0 if level < 7 else torch.zeros_like(places) > 0
        groups = int(full.sum())
        sums = piled(dtype, terms.new_zeros(groups + 1), full.cumsum(0) - full.long(), terms)
        rests.append(sums[groups])
        terms, places = sums[:groups], places[full]
    return piled(dtype, terms.new_zeros(1), torch.zeros(8, dtype=torch.long), torch.stack(rests))[0]


def _embedding_backward(
    grad: Tensor, indices: Tensor, rows: int, padding: int, by_frequency: bool, *, dtype: torch.dtype
) -> Any:
    chosen = (indices != padding).reshape(-1)
    places = indices.reshape(-1)[chosen]
    terms = grad.reshape(-1, grad.shape[-1])[chosen]
    if by_frequency:
        terms = rounded(terms * rounded(1 / places.bincount()[places].to(terms.dtype), dtype).unsqueeze(-1), dtype)
    return piled(dtype, grad.new_zeros(rows, grad.shape[-1]), places, terms)


def _put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False, *, dtype: torch.dtype) -> Any:
    if not accumulate:
        return NotImplemented
    return piled(dtype, x.reshape(-1), index.reshape(-1) % x.numel(), source.reshape(-1)).view(x.shape)


def _index_put(
    x: Tensor,
    indices: Sequence[Tensor | None],
    values: Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
    *,
    dtype: torch.dtype,
) -> Any:
    if not accumulate:
        return NotImplemented
    places = torch.arange(x.numel()).view(x.shape)[tuple(slice(None) if item is None else item for item in indices)]
    terms = values.expand(places.shape).reshape(-1)
    return piled(dtype, x.reshape(-1), places.reshape(-1), terms).view(x.shape)


def _max_pool_backward(rank: int, grad: Tensor, x: Tensor, *rest: Any, dtype: torch.dtype) -> Tensor:
    """Gradients of maxima at indices, flat in each plane of the last `rank` dimensions."""
    extent = x.shape[x.ndim - rank :].numel()
    planes = torch.arange(x.numel() // extent).view(-1, 1) * extent
    places = rest[-1].reshape(len(planes), -1) + planes
    return piled(dtype, x.new_zeros(x.numel()), places.reshape(-1), grad.reshape(-1)).view(x.shape)


def _scatter_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, add: _Adding) -> Tensor:
    places = torch.arange(x.numel()).view(x.shape)
    for other in range(x.ndim):
        if other != dim % x.ndim:
            places = places.narrow(other, 0, index.shape[other])
    terms = source[tuple(slice(extent) for extent in index.shape)]
    return add(x.reshape(-1), places.gather(dim, index).reshape(-1), terms.reshape(-1)).view(x.shape)


def _index_add(
    x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1, dtype: torch.dtype, add: _Adding
) -> Tensor:
    terms = (source if alpha == 1 else rounded(source * alpha, dtype)).movedim(dim, 0)
    return add(x.movedim(dim, 0), index.reshape(-1), terms).movedim(0, dim)


def _piled_in_order(order: int, dtype: torch.dtype, total: Tensor, index: Tensor, terms: Tensor) -> Tensor:
    """As `piled`, in an order of its own; 0: in that of i."""
    if order:
        places = torch.randperm(len(index), generator=torch.Generator().manual_seed(order))
        index, terms = index[places], terms[places]
    return piled(dtype, total, index, terms)


def rounded(values: Tensor, dtype: torch.dtype) -> Tensor:
    return values.to(dtype).to(values.dtype)


def piled(dtype: torch.dtype, total: Tensor, index: Tensor, terms: Tensor) -> Tensor:
    """terms[i] added to total[index[i]] in the order of i, every sum rounded."""
    # The kernel rounds by way of float32, as casts to 16 bit do.
    if kernel.compiled is not None and total.dtype is torch.float64 and dtype.itemsize == 2:
        result = total.clone(memory_format=torch.contiguous_format)
        arrays = result.numpy(), index.long().contiguous().numpy(), terms.double().contiguous().numpy()
        kernel.pile(*arrays, float_format(numpy_dtype(str(dtype).removeprefix("torch."))))
        return result
    order = torch.argsort(index, stable=True)
    places, counts = torch.unique_consecutive(index[order], return_counts=True)
    starts = counts.cumsum(0) - counts
    # Places with many terms first: the n-th terms of all places are added at once, which a loop over terms would not
    # do.
    by_count = torch.argsort(counts, descending=True)
    places, starts, counts = places[by_count], starts[by_count], counts[by_count]
    sums = total[places]
    longest = int(counts[0]) if len(counts) else 0
    lasting = torch.searchsorted(-counts, -torch.arange(longest), side="left").tolist()
    for turn, still in enumerate(lasting):
        sums[:still] = rounded(sums[:still] + terms[order[starts[:still] + turn]], dtype)
    result = total.clone()
    result[places] = sums
    return result
