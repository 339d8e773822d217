"""PyTorch: sums that 16-bit kernels of torch's own CPU take term by term, rounding each, and the kernels that scatter.

Written as they run: each kernel takes the dtype to round to and then its own arguments, in float64.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pytest_probe.numerics import kernel
from pytest_probe.numerics.dtypes import float_format, numpy_dtype

ATEN = torch.ops.aten


def rounded_once(values: Tensor, dtype: torch.dtype) -> Tensor:
    return values.to(dtype).to(values.dtype)


def lanes() -> int:
    """How many 16-bit numbers a vector holds that torch's kernels are written for."""
    if torch.backends.cpu.get_cpu_capability() == "AVX512":
        return 32
    return 16 if platform.machine() in ("x86_64", "AMD64") else 8


def looped() -> int:
    """How many 16-bit numbers an elementwise loop takes at once: two vectors, of AVX2 where the processor has AVX512,
    since few such loops are built for it."""
    return 2 * min(lanes(), 16)


def fuses() -> bool:
    """Do vectors of 16-bit numbers multiply and add without rounding the product?"""
    return torch.backends.cpu.get_cpu_capability() in ("AVX512", "AVX2")


def piled(
    dtype: torch.dtype,
    total: Tensor,
    index: Tensor,
    terms: Tensor,
    join: Callable[[Tensor, Tensor], Tensor] = torch.add,
) -> Tensor:
    """terms[i] added to total[index[i]], or multiplied with it, in the order of i, every result rounded."""
    # The kernel rounds by way of float32, as casts to 16 bit do.
    if kernel.compiled is not None and total.dtype is torch.float64 and dtype.itemsize == 2:
        result = total.clone(memory_format=torch.contiguous_format)
        arrays = result.numpy(), index.long().contiguous().numpy(), terms.double().contiguous().numpy()
        kernel.pile(*arrays, float_format(numpy_dtype(str(dtype).removeprefix("torch."))), product=join is torch.mul)
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
        sums[:still] = rounded_once(join(sums[:still], terms[order[starts[:still] + turn]]), dtype)
    result = total.clone()
    result[places] = sums
    return result


def chain(dtype: torch.dtype, rows: Tensor, start: Tensor | None = None) -> Tensor:
    """The sum of each row, added up from its first element, or to a sum from before it, every sum rounded."""
    total = rows.new_zeros(rows.shape[:-1]) if start is None else start
    return piled(dtype, total[None], torch.zeros(rows.shape[-1], dtype=torch.long), rows.movedim(-1, 0))[0]


def cascade(dtype: torch.dtype, terms: Tensor, places: Tensor, count: int) -> Tensor:
    """The sum of terms at some of `count` places, on eight levels: what has come together up to every 16th place (or a
    higher power of 2) goes to the next level as one."""
    # As torch's cascade sum has it: eight levels, of 16 places each or as many as the terms need.
    bits = max(4, math.ceil(math.log2(max(count, 1))) // 8)
    rests = []
    for level in range(8):
        full = ((places >> bits * level) & ((1 << bits) - 1)) == 0 if level < 7 else torch.zeros_like(places) > 0
        groups = int(full.sum())
        sums = piled(dtype, terms.new_zeros(groups + 1), full.cumsum(0) - full.long(), terms)
        rests.append(sums[groups])
        terms, places = sums[:groups], places[full]
    return chain(dtype, torch.stack(rests))


def embedding_backward(
    dtype: torch.dtype, grad: Tensor, indices: Tensor, rows: int, padding: int, by_frequency: bool
) -> Any:
    chosen = (indices != padding).reshape(-1)
    places = indices.reshape(-1)[chosen]
    terms = grad.reshape(-1, grad.shape[-1])[chosen]
    if by_frequency:
        terms = terms * rounded_once(1 / places.bincount()[places].to(terms.dtype), dtype).unsqueeze(-1)
        fused = terms.shape[1] // lanes() * lanes() if fuses() else 0
        # Fused vectors add the product unrounded.
        terms[:, fused:] = rounded_once(terms[:, fused:], dtype)
    return piled(dtype, grad.new_zeros(rows, grad.shape[-1]), places, terms)


def index_add(dtype: torch.dtype, x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Any:
    """Slice by slice, but for slices that are not scaled, whose sums are taken in float32."""
    if not x.ndim or (x.ndim > 1 and alpha == 1):
        return NotImplemented
    terms = source if alpha == 1 else _scaled(dtype, source, dim, alpha)
    rows = x.movedim(dim, 0)
    total = piled(dtype, rows, index.reshape(-1), terms.movedim(dim, 0).reshape(-1, *rows.shape[1:]))
    return total.movedim(0, dim)


def _scaled(dtype: torch.dtype, source: Tensor, dim: int, alpha: float) -> Tensor:
    """What whole vectors of a slice hold is not rounded after its scaling."""
    terms = source * rounded_once(source.new_tensor(alpha), dtype)
    if source.ndim < 2 or dim % source.ndim or not source[0].is_contiguous():
        return rounded_once(terms, dtype)
    flat = terms.reshape(len(terms), -1)
    whole = flat.shape[1] // lanes() * lanes()
    return torch.cat([flat[:, :whole], rounded_once(flat[:, whole:], dtype)], 1).view(source.shape)


def index_put(
    dtype: torch.dtype,
    x: Tensor,
    indices: Sequence[Tensor | None],
    values: Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> Any:
    if not accumulate:
        return NotImplemented
    places = torch.arange(x.numel()).view(x.shape)[tuple(slice(None) if item is None else item for item in indices)]
    terms = values.expand(places.shape).reshape(-1)
    return piled(dtype, x.reshape(-1), places.reshape(-1), terms).view(x.shape)


def masked_put(dtype: torch.dtype, x: Tensor, mask: Tensor, indices: Sequence[Tensor | None], values: Tensor) -> Tensor:
    places = [
        None if item is None else item.clamp(-size, size - 1) for item, size in zip(indices, x.shape, strict=False)
    ]
    return index_put(dtype, x, places, torch.where(mask, values, 0.0), True)  # type: ignore[no-any-return]


def scatter_mean(
    dtype: torch.dtype, x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    """A mean is a rounded sum, divided."""
    if reduce != "mean":
        return NotImplemented
    found: list[Tensor] = []
    for values, more in ((x, source), (torch.ones_like(x), torch.ones_like(source))):
        found.append(ATEN.scatter_reduce.two(values, dim, index, more, "sum", include_self=include_self))
    return rounded_once(found[0], dtype) / found[1].clamp(min=1)


def index_reduce(
    dtype: torch.dtype, x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    if reduce not in ("prod", "mean"):
        return NotImplemented
    if not x.ndim:
        more = {"include_self": include_self}
        return index_reduce(dtype, x.reshape(1), 0, index.reshape(1), source.reshape(1), reduce, **more).reshape(())
    join, neutral = (torch.mul, 1.0) if reduce == "prod" else (torch.add, 0.0)
    start = x.movedim(dim, 0) if include_self else x.movedim(dim, 0).index_fill(0, index.long(), neutral)
    total = piled(dtype, start, index, source.movedim(dim, 0), join)
    if reduce == "mean":
        own = torch.full((len(total),), float(include_self), dtype=torch.float64)
        counts = own.index_add(0, index, torch.ones_like(index).double()).clamp(min=1)
        total = total / rounded_once(counts, dtype).view(-1, *[1] * (total.ndim - 1))
    return total.movedim(0, dim).contiguous()


def take_backward(dtype: torch.dtype, x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Any:
    if not accumulate:
        return NotImplemented
    return piled(dtype, x.reshape(-1), index.reshape(-1) % x.numel(), source.reshape(-1)).view(x.shape)


def embedding_bag(dtype: torch.dtype, weight: Tensor, *args: Any, **kwargs: Any) -> Any:
    """The mean is a rounded sum, divided."""
    results = list(ATEN._embedding_bag.default(weight, *args, **kwargs))
    mode = args[3] if len(args) > 3 else kwargs.get("mode", 0)
    if mode == 1:
        sizes = results[2].clamp(min=1).unsqueeze(-1)
        results[0] = rounded_once(results[0] * sizes, dtype) / sizes
    return tuple(results)


def embedding_bag_backward(
    dtype: torch.dtype,
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    bags: Tensor,
    sizes: Tensor,
    largest: Tensor,
    rows: int,
    by_frequency: bool,
    mode: int,
    sparse: bool,
    weights: Tensor | None,
    padding: int = -1,
) -> Any:
    if sparse:
        return NotImplemented
    if mode == 2:
        return largest_backward(dtype, grad[sizes > 0], largest[sizes > 0], rows)
    starts = torch.zeros(len(indices) + 1, dtype=torch.long).index_add(0, offsets, torch.ones_like(offsets))
    indices, order = indices.sort()  # not stable, and that is the order of the sums
    owners = (starts.cumsum(0)[:-1] - 1)[order]
    chosen = indices != padding
    factors = torch.ones(len(owners), dtype=torch.float64) if weights is None else weights[order]
    if by_frequency:
        # Divided by the count of the first indices in their order, one for each: so does the kernel in every dtype.
        _, rank, counts = torch.unique_consecutive(indices, return_inverse=True, return_counts=True)
        factors = factors / counts[rank[rank]]
    factors = rounded_once(factors / sizes[owners] if mode == 1 else factors, dtype)
    terms = rounded_once(grad[owners[chosen]] * factors[chosen].unsqueeze(-1), dtype)
    return piled(dtype, grad.new_zeros(rows, grad.shape[-1]), indices[chosen], terms)


def largest_backward(dtype: torch.dtype, grad: Tensor, largest: Tensor, rows: int) -> Tensor:
    """Each element of a bag's gradient goes to the row that was largest there."""
    width = grad.shape[1]
    places = largest * width + torch.arange(width)
    return piled(dtype, grad.new_zeros(rows * width), places.reshape(-1), grad.reshape(-1)).view(rows, width)


def scatter_add(dtype: torch.dtype, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    places = torch.arange(x.numel()).view(x.shape)
    for other in range(x.ndim):
        if other != dim % x.ndim:
            places = places.narrow(other, 0, index.shape[other])
    terms = source[tuple(slice(extent) for extent in index.shape)]
    return piled(dtype, x.reshape(-1), places.gather(dim, index).reshape(-1), terms.reshape(-1)).view(x.shape)


def rows_added(dtype: torch.dtype, x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    terms = (source if alpha == 1 else rounded_once(source * alpha, dtype)).movedim(dim, 0)
    return piled(dtype, x.movedim(dim, 0), index.reshape(-1), terms).movedim(0, dim)


def max_pool_backward(rank: int) -> Callable[..., Tensor]:
    """Gradients of maxima at indices, flat in each plane of the last `rank` dimensions."""

    def function(dtype: torch.dtype, grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
        extent = x.shape[x.ndim - rank :].numel()
        planes = torch.arange(x.numel() // extent).view(-1, 1) * extent
        places = rest[-1].reshape(len(planes), -1) + planes
        return piled(dtype, x.new_zeros(x.numel()), places.reshape(-1), grad.reshape(-1)).view(x.shape)

    return function


# Sums that the CPU takes in float32, and other devices by atomic additions to the 16-bit tensor, each rounded.
ATOMIC: Mapping[Any, Callable[..., Any]] = {ATEN.scatter_add.default: scatter_add, ATEN.index_add.default: rows_added}
SCATTERING: Mapping[Any, Callable[..., Any]] = {
    ATEN._embedding_bag.default: embedding_bag,
    ATEN._embedding_bag_forward_only.default: embedding_bag,
    ATEN._embedding_bag_backward.default: embedding_bag_backward,
    ATEN.put.default: take_backward,
    ATEN.embedding_dense_backward.default: embedding_backward,
    ATEN.index_add.default: index_add,
    ATEN.index_put.default: index_put,
    ATEN._unsafe_index_put.default: index_put,
    ATEN._unsafe_masked_index_put_accumulate.default: masked_put,
    ATEN.scatter_reduce.two: scatter_mean,
    ATEN.index_reduce.default: index_reduce,
    ATEN.max_pool2d_with_indices_backward.default: max_pool_backward(2),
    ATEN.max_pool3d_with_indices_backward.default: max_pool_backward(3),
    ATEN.adaptive_max_pool2d_backward.default: max_pool_backward(2),
    ATEN.adaptive_max_pool3d_backward.default: max_pool_backward(3),
}
