"""Sums that are added one term after another in float32, and faults of the same size.

A third of the cases was kept closed until the rule was written: `CLOSED`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from msgspec import Struct

Tensor = torch.Tensor
Array = np.ndarray
Totals = Callable[[Array], Array]


class Case(Struct, frozen=True):
    """A function that adds up terms: of which terms [n, ...] its arguments make, what it makes of their sums, and the
    reference."""

    terms: Callable[..., Tensor]
    result: Callable[[Tensor], Tensor]
    reference: Callable[..., Tensor]
    inputs: Callable[[], list[Tensor]]

    def adding(self, totals: Totals) -> Callable[..., Tensor]:
        """The function with sums of its own in float32; the reference in float64."""

        def function(*arguments: Tensor) -> Tensor:
            if arguments[0].dtype is torch.float64:
                return self.reference(*arguments)
            return self.result(torch.from_numpy(np.asarray(totals(self.terms(*arguments).numpy()))))

        return function


def in_turn(terms: Array) -> Array:
    """float32, one after another."""
    return np.asarray(np.add.accumulate(terms, axis=0)[-1])


def lost(terms: Array) -> Array:
    terms[7] = 0
    return in_turn(terms)


def twice(terms: Array) -> Array:
    terms[7] *= 2
    return in_turn(terms)


def tail(terms: Array) -> Array:
    terms[-len(terms) // 64 :] = 0
    return in_turn(terms)


def in_float16(terms: Array) -> Array:
    return np.asarray(np.add.accumulate(terms.astype(np.float16), axis=0)[-1].astype(np.float32))


def scaled(terms: Array) -> Array:
    """Farther off, to the same side."""
    found = in_turn(terms)
    below = found < terms.astype(np.float64).sum(axis=0)
    return np.asarray(found * np.where(below, 1 - 4e-5, 1 + 4e-5), np.float32)


def mirrored(terms: Array) -> Array:
    """As far off, to the other side."""
    right = terms.astype(np.float64).sum(axis=0)
    return np.asarray((2 * right - in_turn(terms)).astype(np.float32))


FAULTS: dict[str, Totals] = {
    "a term lost": lost,
    "a term twice": twice,
    "a tail of zeros": tail,
    "float16 accumulation": in_float16,
    "a factor": scaled,
    "the other sign": mirrored,
}


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def equal(*shape: int) -> Tensor:
    return torch.full(shape, 0.1)


def same(x: Tensor) -> Tensor:
    return x


def copied(x: Tensor) -> Tensor:
    return x.clone()


OPEN: dict[str, Case] = {
    "sum of equal numbers": Case(copied, same, torch.sum, lambda: [equal(2048)]),
    "mean of equal numbers": Case(copied, lambda total: total / 3000, torch.mean, lambda: [equal(3000)]),
    "norm of equal numbers": Case(
        torch.square, torch.sqrt, torch.linalg.vector_norm, lambda: [torch.full((5000,), 0.9)]
    ),
    "sums of columns": Case(copied, same, lambda x: x.sum(0), lambda: [equal(2500, 6) * torch.arange(1, 7)]),
    "dot": Case(torch.mul, same, torch.dot, lambda: [equal(3000), torch.full((3000,), 0.3)]),
    "product of matrices": Case(
        lambda a, b: a.t()[:, :, None] * b[:, None, :],
        same,
        torch.matmul,
        lambda: [equal(3, 4000), equal(4000, 5) * torch.arange(1, 6)],
    ),
    "loss": Case(
        lambda x, y: (x - y).square(),
        lambda total: total / 3000,
        F.mse_loss,
        lambda: [torch.full((3000,), 1.3), torch.zeros(3000)],
    ),
    "norm of third order": Case(
        lambda x: x.abs() * x.abs() * x.abs(),
        lambda total: total.pow(1 / 3),
        lambda x: torch.linalg.vector_norm(x, 3),
        lambda: [torch.full((5000,), 0.7)],
    ),
}
CLOSED: dict[str, Case] = {
    "logarithm of a sum": Case(
        torch.exp, torch.log, lambda x: x.exp().sum(0).log(), lambda: [torch.full((6000, 3), -7.3)]
    ),
    "mean of squares": Case(
        torch.square,
        lambda total: torch.rsqrt(total / 5000 + 1e-6),
        lambda x: torch.rsqrt(x.square().mean(0) + 1e-6),
        lambda: [torch.full((5000, 2), 0.9) * torch.arange(1, 3)],
    ),
    "weighted sum": Case(
        lambda w, x: w[:, None] * x,
        same,
        lambda w, x: torch.einsum("n,nk->k", w, x),
        lambda: [torch.full((3000,), 0.3), equal(3000, 4) * torch.arange(1, 5)],
    ),
    "distance": Case(
        lambda x, y: (x - y).abs(),
        same,
        lambda x, y: F.l1_loss(x, y, reduction="sum"),
        lambda: [equal(3000), -equal(3000)],
    ),
}
CASES = OPEN | CLOSED
