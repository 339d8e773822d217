"""Kernels with one fault each, and the question of --probe-standard=self that finds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from msgspec import Struct
from torch import Tensor

Function = Callable[..., Any]
NARROW = (torch.bfloat16, torch.float16)
ALL = (torch.float32, *NARROW)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def adds_in_16_bit(x: Tensor, dim: int) -> Tensor:
    """One term after the other, each sum rounded to 16 bit."""
    return adds_in_turn(x.to(x.dtype if x.itemsize == 2 else torch.bfloat16), dim).to(x.dtype)


def without_max(x: Tensor, dim: int) -> Tensor:
    """By exponentials of the scores themselves, in float32 at least."""
    wide = x.exp() if x.dtype is torch.float64 else x.float().exp()
    return (wide / wide.sum(dim, keepdim=True)).to(x.dtype)


def adds_in_turn(x: Tensor, dim: int) -> Tensor:
    total = torch.zeros_like(x.select(dim, 0))
    for column in x.unbind(dim):
        total = total + column
    return total


class Racing:
    """Adds the parts of a row in another order each time."""

    def __init__(self) -> None:
        self._generator = torch.Generator().manual_seed(0)

    def __call__(self, x: Tensor, dim: int) -> Tensor:
        order = torch.randperm(x.shape[dim], generator=self._generator)
        parts = x[:, order.to(x.device)].unflatten(dim, (64, -1)).sum(-1)
        return adds_in_turn(parts, dim)


def without_its_edge(x: Tensor, other: Tensor) -> Tensor:
    """A product whose last three rows lack a tile of terms."""
    found = torch.matmul(x, other)
    found[-3:] -= torch.matmul(x[-3:, -16:], other[-16:])
    return found


def plain_log1p(x: Tensor) -> Tensor:
    wide = x if x.dtype is torch.float64 else x.float()
    return (1 + wide).log().to(x.dtype)


def overflowing(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention that has an infinity where a score is large."""
    found = F.scaled_dot_product_attention(query, key, value)
    scores = query.float() @ key.float().transpose(-2, -1)
    return found.masked_fill(scores.amax(-1, keepdim=True) > 100, torch.inf)


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return F.gelu(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (found,) = torch.autograd.grad(F.gelu(x), x, gradient)
        return found * 1.01


def jumping(x: Tensor) -> Tensor:
    """A sine that reduces its argument wrongly from 100 on."""
    return torch.where(x >= 100, -torch.sin(x), torch.sin(x))


def scaled(x: Tensor) -> Tensor:
    return F.silu(x) * 1.001


class Fault(Struct, frozen=True):
    """A call, and the kernel that is wrong; alone: only in the dtype of the call, not in every one. asked are the
    questions, found the one that finds it, "" where none does."""

    api: str
    right: Function
    wrong: Function
    args: tuple[Any, ...]
    found: str
    dtypes: tuple[torch.dtype, ...] = ALL
    alone: bool = False
    direction: str = "forward"
    asked: tuple[str, ...] = ("wider-dtype", "cpu", "no-jumps", "finite")

    def call(self, dtype: torch.dtype) -> Function:
        if not self.alone:
            return self.wrong
        right, wrong = self.right, self.wrong
        return lambda *args, **kwargs: (wrong if args[0].dtype is dtype else right)(*args, **kwargs)

    def arguments(self, dtype: torch.dtype) -> tuple[Any, ...]:
        return tuple(arg.to(dtype) if isinstance(arg, Tensor) else arg for arg in self.args)


_ROWS = normal(4, 4096).abs()
_SCORES = normal(6, 24) * 60
_PRODUCT = normal(24, 64), normal(64, 16, seed=1)
_LARGE = normal(2, 8, 16) * 12
_EDGE = torch.cat([torch.linspace(80, 99.9, 63), torch.tensor([100.0])])
FAULTS = {
    "16-bit sums": Fault("Torch.sum", torch.sum, adds_in_16_bit, (_ROWS, 1), "wider-dtype", alone=True),
    "softmax without max": Fault("Functional.softmax", F.softmax, without_max, (_SCORES, -1), "finite"),
    "tile edge": Fault("Torch.matmul", torch.matmul, without_its_edge, _PRODUCT, "wider-dtype", alone=True),
    "tile edge in all": Fault("Torch.matmul", torch.matmul, without_its_edge, _PRODUCT, "cpu"),
    "log(1 + x)": Fault("Torch.log1p", torch.log1p, plain_log1p, (normal(64) * 1e-5,), "cpu", ALL[:2]),
    "overflow": Fault(
        "Functional.scaled_dot_product_attention", F.scaled_dot_product_attention, overflowing, (_LARGE,) * 3, "finite"
    ),
    "gradient": Fault(
        "Functional.gelu", F.gelu, _Gelu.apply, (normal(16, 32),), "wider-dtype", NARROW[:1], True, "backward"
    ),
    "jump": Fault(
        "Torch.sin", torch.sin, jumping, (_EDGE,), "no-jumps", ALL[:1], asked=("wider-dtype", "no-jumps", "finite")
    ),
    "factor": Fault("Functional.silu", F.silu, scaled, (normal(64),), "", asked=("wider-dtype", "no-jumps", "finite")),
}  # fmt: skip
RACE = Fault("Torch.sum", torch.sum, Racing(), (normal(4, 4096), 1), "relation.again")
