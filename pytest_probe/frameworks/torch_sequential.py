"""PyTorch: kernels whose 16-bit versions add up terms one after another, rounding every sum, on torch's own CPU.

Written as they run: each takes the dtype to round to and then the kernel's own arguments, in float64.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from pytest_probe.frameworks import torch_attention

ATEN = torch.ops.aten


def rounded(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return values.to(dtype).to(values.dtype)


def piled(
    dtype: torch.dtype,
    total: torch.Tensor,
    index: torch.Tensor,
    terms: torch.Tensor,
    join: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = torch.add,
) -> torch.Tensor:
    """terms[i] added to total[index[i]], or multiplied with it, in the order of i, every result rounded."""
    order = torch.argsort(index, stable=True)
    places, counts = torch.unique_consecutive(index[order], return_counts=True)
    starts = counts.cumsum(0) - counts
    by_count = torch.argsort(counts, descending=True)
    places, starts, counts = places[by_count], starts[by_count], counts[by_count]
    sums = total[places]
    longest = int(counts[0]) if len(counts) else 0
    lasting = torch.searchsorted(-counts, -torch.arange(longest), side="left").tolist()
    for turn, still in enumerate(lasting):
        sums[:still] = rounded(join(sums[:still], terms[order[starts[:still] + turn]]), dtype)
    result = total.clone()
    result[places] = sums
    return result


def embedding_backward(
    dtype: torch.dtype, grad: torch.Tensor, indices: torch.Tensor, rows: int, padding: int, by_frequency: bool
) -> torch.Tensor:
    if by_frequency:
        return NotImplemented
    chosen = (indices != padding).reshape(-1)
    terms = grad.reshape(-1, grad.shape[-1])[chosen]
    return piled(dtype, grad.new_zeros(rows, grad.shape[-1]), indices.reshape(-1)[chosen], terms)


def index_add(
    dtype: torch.dtype, x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, alpha: float = 1
) -> torch.Tensor:
    if x.ndim == 0:
        return NotImplemented
    terms = source if alpha == 1 else rounded(source * alpha, dtype)
    return piled(dtype, x.movedim(dim, 0), index.reshape(-1), terms.movedim(dim, 0)).movedim(0, dim).contiguous()


def index_put(
    dtype: torch.dtype,
    x: torch.Tensor,
    indices: Sequence[torch.Tensor | None],
    values: torch.Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> torch.Tensor:
    if not accumulate:
        return NotImplemented
    places = torch.arange(x.numel()).view(x.shape)[tuple(slice(None) if item is None else item for item in indices)]
    terms = values.expand(places.shape).reshape(-1)
    return piled(dtype, x.reshape(-1), places.reshape(-1), terms).view(x.shape)


def scatter_add(
    dtype: torch.dtype, x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor
) -> torch.Tensor:
    if x.ndim == 0:
        return NotImplemented
    inner = tuple(slice(0, extent) for extent in index.shape)
    numbers = torch.arange(x.numel()).view(x.shape)
    crossing = tuple(slice(0, x.shape[d] if d == dim % x.ndim else extent) for d, extent in enumerate(index.shape))
    places = numbers[crossing].gather(dim, index)
    return piled(dtype, x.reshape(-1), places.reshape(-1), source[inner].reshape(-1)).view(x.shape)


def scatter_reduce(
    dtype: torch.dtype, x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, reduce: str
) -> torch.Tensor:
    return scatter_add(dtype, x, dim, index, source) if reduce == "add" else NotImplemented


def scatter_mean(
    dtype: torch.dtype,
    x: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: torch.Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> torch.Tensor:
    """A mean is a rounded sum, divided."""
    if reduce != "mean":
        return NotImplemented
    found: list[torch.Tensor] = []
    for values, more in ((x, source), (torch.ones_like(x), torch.ones_like(source))):
        found.append(ATEN.scatter_reduce.two(values, dim, index, more, "sum", include_self=include_self))
    return rounded(found[0], dtype) / found[1].clamp(min=1)


def index_reduce(
    dtype: torch.dtype,
    x: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: torch.Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> torch.Tensor:
    if reduce not in ("prod", "mean") or not include_self:
        return NotImplemented
    join = torch.mul if reduce == "prod" else torch.add
    total = piled(dtype, x.movedim(dim, 0), index, source.movedim(dim, 0), join)
    if reduce == "mean":
        counts = torch.ones(len(total), dtype=torch.float64).index_add(0, index, torch.ones_like(index).double())
        total = total / rounded(counts, dtype).view(-1, *[1] * (total.ndim - 1))
    return total.movedim(0, dim).contiguous()


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
        numbers = torch.arange(extents.numel(), dtype=torch.float64).view(1, 1, *extents)
        places = torch.nn.functional.pad(numbers, list(padding), mode=mode)[0, 0].long()
        return shown(dtype, grad, x, places)

    return function


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


def take_backward(
    dtype: torch.dtype, x: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False
) -> torch.Tensor:
    if not accumulate:
        return NotImplemented
    return piled(dtype, x.reshape(-1), index.reshape(-1) % x.numel(), source.reshape(-1)).view(x.shape)


def pooled(dtype: torch.dtype, grad: torch.Tensor, x: torch.Tensor, indices: torch.Tensor, rank: int) -> torch.Tensor:
    """The gradient of maxima at `indices`, flat in each plane of x's last `rank` dimensions."""
    extent = x.shape[x.ndim - rank :].numel()
    planes = torch.arange(x.numel() // extent).view(-1, 1) * extent
    places = indices.reshape(len(planes), -1) + planes
    return piled(dtype, x.new_zeros(x.numel()), places.reshape(-1), grad.reshape(-1)).view(x.shape)


def max_pool_backward(rank: int) -> Callable[..., torch.Tensor]:
    def function(dtype: torch.dtype, grad: torch.Tensor, x: torch.Tensor, *rest: Any) -> torch.Tensor:
        return pooled(dtype, grad, x, rest[-1], rank)

    return function


def unfolded_backward(
    dtype: torch.dtype, grad: torch.Tensor, shape: Sequence[int], dim: int, size: int, step: int
) -> torch.Tensor:
    x = grad.new_zeros(*shape)
    places = torch.arange(x.numel()).view(x.shape).unfold(dim, size, step)
    return piled(dtype, x.view(-1), places.reshape(-1), grad.reshape(-1)).view(x.shape)


def folded(
    dtype: torch.dtype, columns: torch.Tensor, extents: Sequence[int], kernel: Sequence[int], *window: Sequence[int]
) -> torch.Tensor:
    """Columns added up in the image that they show, one position of the kernel after another."""
    numbers = torch.arange(1.0, extents[0] * extents[1] + 1, dtype=torch.float64).view(1, 1, *extents)
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
        spans = [
            spans_of(x.shape[d], grad.shape[d], kernel[d], stride[d], padding[d]) for d in range(-rank, 0)
        ]
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
        return windowed(dtype, x, rank, windows, rounded(grad / rounded(sizes, dtype), dtype))

    return function


def spans_of(extent: int, count: int, kernel: int, stride: int, padding: int) -> list[range]:
    """Windows along a dimension, with what they show of the padding."""
    starts = [i * stride - padding for i in range(count)]
    return [range(start, min(start + kernel, extent + padding)) for start in starts]


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
                total = rounded(total / rounded(torch.tensor(float(len(part)), dtype=torch.float64), dtype), dtype)
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
            delta = rounded(delta / rounded(sizes, dtype).view(-1, *[1] * (rank - 1 - place)), dtype)
        return windowed(dtype, x, rank, windows, delta)

    return function


def glu_backward(dtype: torch.dtype, grad: torch.Tensor, x: torch.Tensor, dim: int) -> torch.Tensor:
    first, second = x.chunk(2, dim)
    gate = rounded(second.sigmoid(), dtype)
    return torch.cat([gate * grad, (1 - gate) * gate * first * grad], dim)


def log_softmax(dtype: torch.dtype, x: torch.Tensor, dim: int, to_float: bool) -> torch.Tensor:
    """Along the last dimension each row's sum, and its logarithm, are rounded."""
    if not x.ndim or dim % x.ndim != x.ndim - 1:
        return NotImplemented
    below = x - x.amax(-1, keepdim=True)
    sums = rounded(below.exp().sum(-1, keepdim=True), dtype)
    return below - rounded(sums.log(), dtype)


def chain(dtype: torch.dtype, rows: torch.Tensor) -> torch.Tensor:
    """The sum of each row, added up from its first element, every sum rounded."""
    total = torch.zeros_like(rows[..., 0]) if rows.shape[-1] else rows.new_zeros(rows.shape[:-1])
    for column in rows.unbind(-1):
        total = rounded(total + column, dtype)
    return total


def cascade(dtype: torch.dtype, terms: torch.Tensor) -> torch.Tensor:
    """The sum of terms on eight levels: of each a group goes to the next as one, the first term as a group."""
    step = 1 << max(4, math.ceil(math.log2(max(len(terms), 1))) // 8)
    rests = []
    for level in range(8):
        padded = torch.cat([terms.new_zeros(step - 1), terms])
        whole = len(padded) // step * step if level < 7 else 0
        rests.append(chain(dtype, padded[whole:]))
        terms = chain(dtype, padded[:whole].view(-1, step))
    return chain(dtype, torch.stack(rests))


def nll(
    dtype: torch.dtype, x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, reduction: int, ignored: int
) -> tuple[torch.Tensor, torch.Tensor]:
    if reduction == 0 or x.ndim == 1:
        return NotImplemented
    kept = (target != ignored).reshape(-1)
    aims = torch.where(target == ignored, 0, target)
    terms = -x.gather(1, aims.unsqueeze(1)).reshape(-1)[kept]
    weights = torch.ones_like(terms) if weight is None else weight[aims.reshape(-1)[kept]]
    total = cascade(dtype, rounded(terms * weights, dtype))
    whole = rounded(terms.new_tensor(len(terms)), dtype) if weight is None else cascade(dtype, weights)
    return (total / whole if reduction == 1 else total), whole


def softmax(dtype: torch.dtype, x: torch.Tensor, dim: int, to_float: bool) -> torch.Tensor:
    """Along another dimension than the last the powers that no vector holds are rounded."""
    if not x.ndim or dim % x.ndim == x.ndim - 1:
        return NotImplemented
    result = ATEN._softmax.default(x, dim, False)
    inner = x.shape[dim % x.ndim + 1 :].numel()
    rest = inner % LANES.get(torch.backends.cpu.get_cpu_capability(), 8)
    flat = x.reshape(-1, x.shape[dim], inner)[..., inner - rest :].transpose(1, 2)
    powers = (flat - flat.amax(-1, keepdim=True)).exp()
    quotients = rounded(powers, dtype) / powers.sum(-1, keepdim=True)
    result.view(-1, x.shape[dim], inner)[..., inner - rest :] = quotients.transpose(1, 2)
    return result


def layer_norm_backward(
    dtype: torch.dtype,
    grad: torch.Tensor,
    x: torch.Tensor,
    shape: Sequence[int],
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    wanted: Sequence[bool],
) -> tuple[torch.Tensor | None, ...]:
    """Gradients of weight and bias are added up row by row."""
    exact = ATEN.native_layer_norm_backward.default(grad, x, shape, mean, rstd, weight, bias, wanted)
    rows = [chain(dtype, terms.reshape(-1, *shape).movedim(0, -1)) for terms in (grad * (x - mean) * rstd, grad)]
    return (exact[0], *(row if asked else None for row, asked in zip(rows, wanted[1:], strict=True)))


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
    """Statistics are rounded before they are used; in bfloat16 each step towards them as well."""
    step = functools.partial(rounded, dtype=dtype) if dtype is torch.bfloat16 else _as_it_is
    over = [dim for dim in range(x.ndim) if dim != 1]
    places = (1, -1, *[1] * (x.ndim - 2))
    count = x.numel() // x.shape[1]
    if training:
        mean = step(x.mean(over))
        squares = step((x - mean.view(places)).square().sum(over))
        scale = (step(squares / count) + eps).rsqrt()
        part, rest = step(x.new_tensor(momentum)), step(x.new_tensor(1 - momentum))
        if running_mean is not None:
            running_mean.copy_(step(part * mean) + step(rest * running_mean))
        if running_var is not None:
            running_var.copy_(part * step(squares / (count - 1)) + step(rest * running_var))
    else:
        assert running_mean is not None and running_var is not None
        mean, scale = running_mean, (running_var + eps).rsqrt()
    mean, scale = rounded(mean, dtype), rounded(scale, dtype)
    out = (x - mean.view(places)) * scale.view(places)
    out = out if weight is None else out * weight.view(places)
    out = out if bias is None else out + bias.view(places)
    empty = x.new_empty(0)
    return (out, mean, scale) if training else (out, empty, empty)


def _as_it_is(values: torch.Tensor) -> torch.Tensor:
    return values


# How many 16-bit numbers a vector of the processor holds.
LANES = {"AVX512": 32, "AVX2": 16}

def embedding_bag(dtype: torch.dtype, weight: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """The mean is a rounded sum, divided."""
    results = list(ATEN._embedding_bag.default(weight, *args, **kwargs))
    mode = args[3] if len(args) > 3 else kwargs.get("mode", 0)
    if mode == 1:
        sizes = results[2].clamp(min=1).unsqueeze(-1)
        results[0] = rounded(results[0] * sizes, dtype) / sizes
    return tuple(results)


def embedding_bag_backward(
    dtype: torch.dtype,
    grad: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    bags: torch.Tensor,
    sizes: torch.Tensor,
    largest: torch.Tensor,
    rows: int,
    by_frequency: bool,
    mode: int,
    sparse: bool,
    weights: torch.Tensor | None,
    padding: int = -1,
) -> torch.Tensor:
    if mode == 2 or by_frequency or sparse or weights is not None:
        return NotImplemented
    starts = torch.zeros(len(indices) + 1, dtype=torch.long).index_add(0, offsets, torch.ones_like(offsets))
    indices, order = indices.sort()  # not stable, and that is the order of the sums
    owners = (starts.cumsum(0)[:-1] - 1)[order]
    chosen = indices != padding
    terms = grad[owners[chosen]]
    if mode == 1:
        terms = rounded(terms * rounded(1 / sizes.double(), dtype)[owners[chosen]].unsqueeze(-1), dtype)
    return piled(dtype, grad.new_zeros(rows, grad.shape[-1]), indices[chosen], terms)


def trilinear(
    dtype: torch.dtype,
    x: torch.Tensor,
    y: torch.Tensor,
    z: torch.Tensor,
    missing_x: Sequence[int],
    missing_y: Sequence[int],
    missing_z: Sequence[int],
    summed: Sequence[int],
    unrolled: int = 1,
) -> torch.Tensor:
    """Products of two, then of three factors, for one slice after another."""
    for dim in range(x.ndim + len(missing_x)):
        x = x.unsqueeze(dim) if dim in missing_x else x
        y = y.unsqueeze(dim) if dim in missing_y else y
        z = z.unsqueeze(dim) if dim in missing_z else z
    early = [dim for dim in summed if z.shape[dim] == 1 and dim in missing_z]
    late = [dim for dim in summed if dim not in early]
    slices = max(x.shape[unrolled], y.shape[unrolled], z.shape[unrolled])

    def part(tensor: torch.Tensor, place: int) -> torch.Tensor:
        return tensor.narrow(unrolled, place if tensor.shape[unrolled] > 1 else 0, 1)

    made = []
    for place in range(slices):
        product = part(x, place) * part(y, place)
        product = rounded(product.sum(early, keepdim=True) if early else product, dtype)
        product = product * part(z, place)
        made.append(rounded(product.sum(late, keepdim=True) if late else product, dtype))
    if unrolled in summed:
        total = chain(dtype, torch.stack(made, -1))
    else:
        total = torch.cat(made, unrolled)
    for dim in sorted(summed, reverse=True):
        total = total.squeeze(dim)
    return total


SEQUENTIAL: Mapping[Any, Callable[..., Any]] = {
    ATEN.glu_backward.default: glu_backward,
    torch_attention.FORWARD: torch_attention.narrow_forward,
    torch_attention.BACKWARD: torch_attention.narrow_backward,
    ATEN.native_layer_norm_backward.default: layer_norm_backward,
    ATEN.native_batch_norm.default: batch_norm,
    ATEN._embedding_bag.default: embedding_bag,
    ATEN._embedding_bag_forward_only.default: embedding_bag,
    ATEN._embedding_bag_backward.default: embedding_bag_backward,
    ATEN._trilinear.default: trilinear,
    ATEN._softmax.default: softmax,
    ATEN._log_softmax.default: log_softmax,
    ATEN.nll_loss_forward.default: nll,
    ATEN.nll_loss2d_forward.default: nll,
    ATEN.put.default: take_backward,
    ATEN.max_pool2d_with_indices_backward.default: max_pool_backward(2),
    ATEN.max_pool3d_with_indices_backward.default: max_pool_backward(3),
    ATEN.adaptive_max_pool2d_backward.default: max_pool_backward(2),
    ATEN.adaptive_max_pool3d_backward.default: max_pool_backward(3),
    ATEN.unfold_backward.default: unfolded_backward,
    ATEN.col2im.default: folded,
    ATEN.avg_pool2d_backward.default: averaged_backward(2),
    ATEN.avg_pool3d_backward.default: averaged_backward(3),
    ATEN._adaptive_avg_pool3d.default: adaptive_average(3),
    ATEN.embedding_dense_backward.default: embedding_backward,
    ATEN.index_add.default: index_add,
    ATEN.index_put.default: index_put,
    ATEN._unsafe_index_put.default: index_put,
    ATEN.scatter_add.default: scatter_add,
    ATEN.scatter.reduce: scatter_reduce,
    ATEN.scatter_reduce.two: scatter_mean,
    ATEN.index_reduce.default: index_reduce,
    ATEN.reflection_pad1d_backward.default: pad_backward("reflect", 1),
    ATEN.reflection_pad2d_backward.default: pad_backward("reflect", 2),
    ATEN.reflection_pad3d_backward.default: pad_backward("reflect", 3),
    ATEN.replication_pad1d_backward.default: pad_backward("replicate", 1),
    ATEN.replication_pad2d_backward.default: pad_backward("replicate", 2),
    ATEN.replication_pad3d_backward.default: pad_backward("replicate", 3),
    ATEN._adaptive_avg_pool2d_backward.default: adaptive_average_backward(2),
    ATEN._adaptive_avg_pool3d_backward.default: adaptive_average_backward(3),
}


def in_place(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The same for the version that writes to its first argument."""

    def function(dtype: torch.dtype, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        result = kernel(dtype, x, *args, **kwargs)
        return result if result is NotImplemented else x.copy_(result)

    return function


SEQUENTIAL_IN_PLACE: Mapping[Any, Callable[..., Any]] = {
    ATEN.index_add_.default: in_place(index_add),
    ATEN.index_put_.default: in_place(index_put),
    ATEN._index_put_impl_.default: in_place(index_put),
    ATEN.put_.default: in_place(take_backward),
    ATEN.scatter_add_.default: in_place(scatter_add),
    ATEN.scatter_.reduce: in_place(scatter_reduce),
}


@functools.cache
def kernels(dtype: torch.dtype) -> Mapping[Any, Callable[..., Any]]:
    """Kernels to run in place of torch's own, rounding to dtype."""
    return {func: functools.partial(made, dtype) for func, made in {**SEQUENTIAL, **SEQUENTIAL_IN_PLACE}.items()}
