"""How kernels go from a dtype to the float32 they compute in, and back; right, and as faulty ones do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cases.kernels.entry import Function

Tensor = torch.Tensor
Narrowing = Callable[[Tensor, torch.dtype], Tensor]


def up(x: Tensor) -> Tensor:
    """What a kernel computes in: float32, and float64 where the self-check runs it in that."""
    return x if x.dtype is torch.float64 or not x.is_floating_point() else x.float()


def down(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype)


def toward_zero(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The excess bits cut off."""
    near = x.to(dtype)
    beyond = near.to(x.dtype).abs() > x.abs()
    return _moved(near, torch.where(beyond, torch.nextafter(near.detach(), torch.zeros_like(near)), near.detach()))


def ulp_up(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The number above the nearest one."""
    near = x.to(dtype)
    return _moved(near, torch.nextafter(near.detach(), torch.full_like(near, torch.inf)))


def _moved(near: Tensor, there: Tensor) -> Tensor:
    """The numbers there, with the gradient of the numbers near."""
    return near + torch.where(there == near.detach(), torch.zeros_like(near), there - near.detach())


def by_way_of(*dtypes: torch.dtype) -> Narrowing:
    """Rounded to other dtypes first."""

    def narrowing(x: Tensor, dtype: torch.dtype) -> Tensor:
        for way in dtypes:
            x = x.to(way).to(x.dtype)
        return x.to(dtype)

    return narrowing


def mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Every floating tensor of an output changed."""
    if isinstance(value, torch.Tensor):
        return change(value) if value.is_floating_point() else value
    if isinstance(value, (tuple, list)):
        return tuple(mapped(item, change) for item in value)
    return value


def once(wide: Function, narrowing: Narrowing = down) -> Function:
    """A kernel that widens its arguments, computes, and rounds each output once to the first argument's dtype."""

    def kernel(*args: Any) -> Any:
        dtype = next(item.dtype for item in args if isinstance(item, torch.Tensor) and item.is_floating_point())
        return mapped(wide(*(mapped(item, up) for item in args)), lambda out: narrowing(out, dtype))

    return kernel


def after(kernel: Function, change: Callable[[Tensor], Tensor]) -> Function:
    """A kernel, and something done to its outputs."""
    return lambda *args: mapped(kernel(*args), change)


def cut(x: Tensor, bits: int) -> Tensor:
    """float32 with that many significand bits, the rest cut off."""
    if x.dtype is not torch.float32:
        return x
    return (x.contiguous().view(torch.int32) & -(1 << (24 - bits))).view(torch.float32)


def stepwise(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """float32 rounded to a dtype and back, as between the kernels of a composed implementation."""
    return lambda x: x.to(dtype).to(x.dtype)


def with_gradient(forward: Function, backward: Function, narrowing: Narrowing = down) -> Function:
    """A kernel with a backward of its own: backward(grad, *args) gives a gradient (or None) for each argument.

    Both compute wide; each result is rounded once.
    """
    run = once(forward, narrowing)

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            ctx.args = args
            return run(*args)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            given = [mapped(item, up) for item in ctx.args]
            found = backward(*(up(grad) for grad in grads), *given)
            found = (found,) if isinstance(found, torch.Tensor) else found
            pairs = zip(ctx.args, found, strict=True)
            return tuple(None if grad is None else grad.to(own.dtype) for own, grad in pairs)

    return Kernel.apply


def tiles(x: Tensor, size: int, dim: int = -1) -> list[Tensor]:
    """Slices of that size along a dimension, the last one shorter where it does not come out even."""
    extent = x.shape[dim]
    return [x.narrow(dim, start, min(size, extent - start)) for start in range(0, extent, size)]


def added_in(dtype: torch.dtype, rows: Tensor) -> Tensor:
    """The sum over the first dimension, one by one, rounded to a dtype after every step."""
    total = rows[0]
    for row in rows[1:]:
        total = (total + row).to(dtype).to(rows.dtype)
    return total
