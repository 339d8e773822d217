"""PyTorch: products that 16-bit kernels of torch's own CPU take factor by factor, and sums of segments.

Written as they run: each takes the dtype to round to and then the kernel's own arguments, in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from pytest_probe.frameworks.torch.cpu16.sequential import lanes, piled, rounded_once

ATEN = torch.ops.aten
# Vectors that are multiplied side by side, and how many numbers each holds at most: no processor has longer ones here.
UNROLLED, LANES = 4, 16
# From how many elements on threads share the product of a whole tensor.
GRAIN = 32_768


def multiplied(to: torch.dtype, total: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """total times the factors of each row in turn, every product rounded."""
    for column in rows.unbind(-1):
        total = rounded_once(total * column, to)
    return total


def vectorised(to: torch.dtype, total: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """The same where a row's factors lie side by side: vectors first, then the lanes of one, then the rest."""
    width = UNROLLED * min(lanes(), LANES)
    whole = rows.shape[-1] // width * width
    if whole:
        vectors = rows[..., :whole].reshape(*rows.shape[:-1], -1, UNROLLED, width // UNROLLED)
        vectors = vectors.movedim(-3, -1)
        first, second, third, fourth = multiplied(to, vectors[..., 0], vectors[..., 1:]).unbind(-2)
        sides = rounded_once(first * second, to), rounded_once(third * fourth, to)
        lane = rounded_once(sides[0] * sides[1], to)
        total = rounded_once(total * multiplied(to, lane[..., 0], lane[..., 1:]), to)
    return multiplied(to, total, rows[..., whole:])


def product_of_all(to: torch.dtype, x: torch.Tensor) -> torch.Tensor:
    """In the order of memory; of a large tensor each thread multiplies a part."""
    one = x.new_ones(())
    order = sorted(range(x.ndim), key=x.stride, reverse=True)
    ordered = x.permute(order)
    if not ordered.is_contiguous():
        step = vectorised if ordered.stride(-1) == 1 else multiplied
        for row in ordered.reshape(-1, ordered.shape[-1]):
            one = step(to, one, row)
        return one
    flat, threads = ordered.reshape(-1), torch.get_num_threads()
    if threads == 1 or len(flat) < GRAIN:
        return vectorised(to, one, flat)
    parts = torch.split(flat, -(-len(flat) // min(threads, -(-len(flat) // GRAIN))))
    return multiplied(to, one, torch.stack([vectorised(to, one, part) for part in parts]))


def prod(to: torch.dtype, x: torch.Tensor, *, dtype: torch.dtype | None = None) -> Any:
    return product_of_all(to, x)


def prod_along(
    to: torch.dtype, x: torch.Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Any:
    if not x.ndim:
        return NotImplemented
    if x.numel() == x.shape[dim]:
        total = product_of_all(to, x).reshape(x.movedim(dim, -1).shape[:-1])
    else:
        step = vectorised if x.stride(dim) == 1 else multiplied
        rows = x.movedim(dim, -1)
        total = step(to, torch.ones_like(rows[..., 0]), rows)
    return total.unsqueeze(dim) if keepdim else total


class Quotients(torch.autograd.Function):
    """A product whose gradient divides by the factors, none of which is zero."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dim: int | None, keepdim: bool) -> torch.Tensor:
        result = torch.prod(x) if dim is None else torch.prod(x, dim, keepdim)
        ctx.save_for_backward(x, result)
        ctx.along = None if keepdim else dim
        return result

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, result = ctx.saved_tensors
        if ctx.along is not None:
            grad, result = grad.unsqueeze(ctx.along), result.unsqueeze(ctx.along)
        return grad * (result / x), None, None


class DividingMode(TorchFunctionMode):
    """Gives products the gradient that they have outside of dispatch modes, where torch takes another, safe for
    zeros."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.prod, torch.Tensor.prod) and kwargs.keys() <= {"dim", "keepdim", "dtype"}:
            x, dim, keepdim = (*args, *(None, None)[len(args) - 1 :])[:3]
            if x.ndim and x.all() and kwargs.get("dtype", x.dtype) is x.dtype:
                dim, keepdim = kwargs.get("dim", dim), kwargs.get("keepdim", keepdim)
                return Quotients.apply(x, dim, bool(keepdim))  # type: ignore[no-untyped-call]
        return func(*args, **kwargs)


def lengths_of(lengths: torch.Tensor | None, offsets: torch.Tensor | None) -> torch.Tensor:
    if lengths is not None:
        return lengths
    assert offsets is not None
    return offsets.diff(dim=-1)


def segment_reduce(
    to: torch.dtype,
    x: torch.Tensor,
    reduce: str,
    *,
    lengths: torch.Tensor | None = None,
    indices: torch.Tensor | None = None,
    offsets: torch.Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Any:
    """Sums and products term by term, a mean as a rounded sum, divided."""
    counts = lengths_of(lengths, offsets)
    dim = counts.ndim - 1
    if reduce not in ("sum", "mean", "prod") or not (counts.sum(-1) == x.shape[dim]).all():
        return NotImplemented
    join: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = torch.mul if reduce == "prod" else torch.add
    start = float(reduce == "prod") if initial is None else initial
    terms = x.flatten(0, dim).reshape(int(counts.sum()), -1)
    total = rounded_once(terms.new_full((counts.numel(), terms.shape[1]), start), to)
    places = torch.arange(counts.numel()).repeat_interleave(counts.reshape(-1))
    total = piled(to, total, places, terms, join)
    if reduce == "mean":
        sizes = rounded_once(counts.reshape(-1, 1).double(), to)
        total = torch.where(sizes > 0, total / sizes, torch.nan if initial is None else total)
    return total.reshape(*counts.shape, *x.shape[dim + 1 :])


def segment_reduce_backward(
    to: torch.dtype,
    grad: torch.Tensor,
    output: torch.Tensor,
    x: torch.Tensor,
    reduce: str,
    *,
    lengths: torch.Tensor | None = None,
    offsets: torch.Tensor | None = None,
    axis: int = 0,
    initial: float | None = None,
) -> Any:
    counts = lengths_of(lengths, offsets)
    dim = counts.ndim - 1
    if reduce not in ("mean", "prod") or not (counts.sum(-1) == x.shape[dim]).all() or (x == 0).any():
        return NotImplemented

    def shown(values: torch.Tensor) -> torch.Tensor:
        return values.flatten(0, dim).repeat_interleave(counts.reshape(-1), 0).reshape(x.shape)

    if reduce == "prod":
        return shown(rounded_once(grad * output, to)) / x
    sizes = rounded_once(counts.double(), to).reshape(*counts.shape, *[1] * (x.ndim - 1 - dim))
    return shown(grad / sizes)


REDUCTIONS: Mapping[Any, Callable[..., Any]] = {
    ATEN.prod.default: prod,
    ATEN.prod.dim_int: prod_along,
    ATEN.segment_reduce.default: segment_reduce,
    ATEN._segment_reduce_backward.default: segment_reduce_backward,
}
