"""Sums, choices and orders along dimensions; products of matrices and their factors, where no single API of torch's
makes Paddle's calls. Each function takes Paddle's arguments, and torch's tensors."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeAlias

import torch

from pytest_probe.frameworks.mapping.paddle_torch import dims, ints

# torch.Tensor: what most of its functions return is not said.
Tensor: TypeAlias = Any


def _all_dims(axis: Any, x: Tensor) -> tuple[int, ...]:
    return tuple(range(x.dim())) if axis is None or axis == [] else tuple(dims(axis, x.dim()))


def prod(x: Tensor, axis: Any, keepdim: bool, dtype: Any) -> Tensor:
    result = x if dtype is None else x.to(dtype)
    if axis is None or axis == []:
        result = torch.prod(result)
        return result.reshape([1] * x.dim()) if keepdim else result
    for dim in sorted(_all_dims(axis, x), reverse=True):
        result = torch.prod(result, dim, keepdim)
    return result


def count_nonzero(x: Tensor, axis: Any, keepdim: bool) -> Tensor:
    return (x != 0).sum(_all_dims(axis, x), keepdim)


def _median(x: Tensor, axis: Any, keepdim: bool, mode: str, *, ignores: bool) -> Any:
    if mode == "min" and not isinstance(axis, (list, tuple)) and axis is not None:
        values, places = (torch.nanmedian if ignores else torch.median)(x, axis, keepdim)
        return values, places
    if mode == "min" and axis is None:
        found = (torch.nanmedian if ignores else torch.median)(x)
        return found.reshape([1] * x.dim()) if keepdim else found
    over = _all_dims(axis, x)
    rest = [dim for dim in range(x.dim()) if dim not in over]
    flat = x.permute(*rest, *over).reshape(*(x.shape[dim] for dim in rest), -1)
    result = (torch.nanquantile if ignores else torch.quantile)(flat, 0.5, -1)
    return result.reshape([1 if dim in over else x.shape[dim] for dim in range(x.dim())]) if keepdim else result


median, nanmedian = partial(_median, ignores=False), partial(_median, ignores=True)


def quantile(x: Tensor, q: Any, axis: Any, keepdim: bool, interpolation: str) -> Tensor:
    at = q if isinstance(q, torch.Tensor) else torch.tensor(q, dtype=x.dtype)
    if not isinstance(axis, (list, tuple)):
        return torch.quantile(x, at, axis, keepdim, interpolation=interpolation)
    over = _all_dims(axis, x)
    rest = [dim for dim in range(x.dim()) if dim not in over]
    flat = x.permute(*rest, *over).reshape(*(x.shape[dim] for dim in rest), -1)
    result = torch.quantile(flat, at, -1, interpolation=interpolation)
    kept = [1 if dim in over else x.shape[dim] for dim in range(x.dim())]
    return result.reshape(*at.shape, *kept) if keepdim else result


def logcumsumexp(x: Tensor, axis: Any, dtype: Any) -> Tensor:
    wide = x if dtype is None else x.to(dtype)
    return torch.logcumsumexp(wide.reshape(-1) if axis is None else wide, 0 if axis is None else int(axis))


def unique(x: Tensor, return_inverse: bool, return_counts: bool, axis: Any, dtype: Any) -> Any:
    found = torch.unique(x, return_inverse=True, return_counts=True, dim=axis)
    asked = [True, return_inverse, return_counts]
    kept = [part if not place else part.reshape(-1).to(dtype) for place, part in enumerate(found) if asked[place]]
    return kept[0] if len(kept) == 1 else tuple(kept)


# Products.


def matmul(x: Tensor, y: Tensor, transpose_x: bool, transpose_y: bool) -> Tensor:
    left = x.mT if transpose_x and x.dim() > 1 else x
    right = y.mT if transpose_y and y.dim() > 1 else y
    return torch.matmul(left, right)


def tensordot(x: Tensor, y: Tensor, axes: Any) -> Tensor:
    if isinstance(axes, torch.Tensor):
        axes = axes.tolist()
    if isinstance(axes, int):
        return torch.tensordot(x, y, axes)
    nested = [isinstance(each, (list, tuple, torch.Tensor)) for each in axes]
    own, other = (ints(axes), ints(axes)) if not any(nested) else (ints(axes[0]), ints(axes[-1]))
    # The shorter list goes on as the longer one.
    longest = max(len(own), len(other))
    own, other = own + other[len(own) : longest], other + own[len(other) : longest]
    return torch.tensordot(x, y, (own, other))


def cross(x: Tensor, y: Tensor, axis: int) -> Tensor:
    dim = next(place for place, size in enumerate(x.shape) if size == 3) if axis in (9, None) else axis
    return torch.linalg.cross(x, y, dim=dim)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    result = torch.matmul(x, weight)
    return result if bias is None else result + bias


# Matrices.


def norm(x: Tensor, p: Any, axis: Any, keepdim: bool, dtype: Any) -> Tensor:
    wide = x if dtype is None else x.to(dtype)
    over = _all_dims(axis, x)
    if len(over) == 2 and axis is not None and p is None:
        p = 2
    if axis is None:
        if p in ("nuc",):
            return torch.linalg.matrix_norm(wide, p, keepdim=keepdim)
        return torch.linalg.vector_norm(wide, 2.0 if p in (None, "fro") else p, over, keepdim)
    if len(over) == 1 or p in (None, "fro"):
        return torch.linalg.vector_norm(wide, 2.0 if p in (None, "fro") else p, over, keepdim)
    return torch.linalg.matrix_norm(wide, p, over, keepdim)


def matrix_rank(x: Tensor, tol: Any, hermitian: bool, atol: Any, rtol: Any) -> Tensor:
    if tol is not None and atol is None and rtol is None:
        return torch.linalg.matrix_rank(x, tol, hermitian)
    return torch.linalg.matrix_rank(x, atol=atol, rtol=rtol, hermitian=hermitian)


def cond(x: Tensor, p: Any) -> Tensor:
    if p in (None, 2, -2):
        return torch.linalg.cond(x, p)
    return torch.linalg.matrix_norm(x, p) * torch.linalg.matrix_norm(torch.linalg.inv(x), p)


def triangular_solve(x: Tensor, y: Tensor, upper: bool, transpose: bool) -> Tensor:
    matrix, high = (x.mT, not upper) if transpose else (x, upper)
    return torch.linalg.solve_triangular(matrix, y, upper=high)


def qr(x: Tensor, mode: str) -> Any:
    found = torch.linalg.qr(x, mode)
    return found[1] if mode == "r" else tuple(found)


def lu(x: Tensor, get_infos: bool) -> Any:
    factors, pivots, infos = torch.linalg.lu_factor_ex(x)
    return (factors, pivots, infos) if get_infos else (factors, pivots)


def vander(x: Tensor, n: int | None, increasing: bool) -> Tensor:
    powers = [x**power for power in range(len(x) if n is None else n)]
    return torch.stack(powers if increasing else powers[::-1], -1) if powers else x.new_zeros(len(x), 0)
