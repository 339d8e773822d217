"""PyTorch: kernels that add up terms, with those added in float32 in an order that is known."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from pytest_probe.numerics.float32_sums import Order, Sum, sum_in_order

_ATEN = torch.ops.aten
Tensor = torch.Tensor
# Infinities and NaN are what a call may have.
_SILENT = np.errstate(invalid="ignore", over="ignore")
# Products of two numbers in a product of matrices that is added up in order: more would take more than seconds.
MOST = 1 << 28


def kernels(order: Order) -> Mapping[Any, Callable[..., Any]]:
    """What replaces kernels of float64: they round their terms to float32, and each sum of them. NotImplemented is
    what they give of other dtypes. Convolutions, sums by an index and large products are not
    among them."""
    add = sum_in_order(order, torch.get_num_threads())
    total, product = functools.partial(_sum, add), functools.partial(_product, add)
    return {
        _ATEN.sum.default: total,
        _ATEN.sum.dim_IntList: total,
        torch.ops.prims.sum.default: total,
        _ATEN.cumsum.default: functools.partial(_running_sum, add),
        _ATEN.mm.default: product,
        _ATEN.bmm.default: product,
    }


def steps() -> Mapping[Any, Callable[..., Any]]:
    """Kernels that are made of such sums, where torch's decompositions do not show it."""
    return {_ATEN._foreach_norm.Scalar: _norms, _ATEN.var.correction: _variance, torch.ops.prims.var.default: _variance}


@_SILENT
def _sum(add: Sum, x: Tensor, dim: Any = None, keepdim: bool = False, **how: Any) -> Any:
    if x.dtype is not torch.float64 or not x.ndim:
        return NotImplemented
    axes = [dim] if isinstance(dim, int) else [int(axis) for axis in dim or range(x.ndim)]
    axes = sorted(axis % x.ndim for axis in axes)
    terms = np.moveaxis(x.detach().numpy(), axes, range(len(axes)))
    found = _tensor(add(terms.reshape(-1, *terms.shape[len(axes) :])))
    for axis in axes if keepdim else ():
        found = found.unsqueeze(axis)
    return found


@_SILENT
def _running_sum(add: Sum, x: Tensor, dim: int, **how: Any) -> Any:
    """One after another in any order: only its last element might be added otherwise."""
    if x.dtype is not torch.float64 or not x.ndim:
        return NotImplemented
    return _tensor(np.add.accumulate(x.detach().numpy().astype(np.float32), axis=dim))


@_SILENT
def _product(add: Sum, first: Tensor, second: Tensor) -> Any:
    """A product of matrices, or of batches of them, a few rows of the result at a time."""
    if first.dtype is not torch.float64 or second.dtype is not torch.float64:
        return NotImplemented
    if first.numel() * second.shape[-1] > MOST:
        return NotImplemented
    left, right = (tensor.detach().numpy().astype(np.float32) for tensor in (first, second))
    if left.ndim == 3:
        parts = [_rows(add, *pair) for pair in zip(left, right, strict=True)]
        return _tensor(np.stack(parts)) if parts else NotImplemented
    return _tensor(_rows(add, left, right))


def _rows(add: Sum, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """left [m, k] by right [k, n]."""
    found = [add(row[:, None] * right) for row in left]
    return np.stack(found) if found else np.zeros((0, right.shape[1]), np.float32)


def _tensor(values: Any) -> Tensor:
    return torch.from_numpy(np.array(values, np.float64))


def _norms(tensors: Any, ord: Any = 2, dtype: torch.dtype | None = None) -> list[Tensor]:
    return [torch.linalg.vector_norm(tensor, ord) for tensor in tensors]


def _variance(x: Tensor, dim: Any = None, correction: Any = 1, keepdim: bool = False, **how: Any) -> Tensor:
    """The mean of squares of what is left without the mean."""
    rest = x - torch.mean(x, dim, keepdim=True) if dim else x - torch.mean(x)
    squares = torch.sum(rest * rest, dim, keepdim) if dim else torch.sum(rest * rest)
    return squares / max(0.0, x.numel() / max(squares.numel(), 1) - (1 if correction is None else correction))
