"""Scatter, gather, embedding and their gradients: tasks and healthy kernels."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from cases.kernels.entry import Task
from cases.kernels.making import integers, normal
from cases.kernels.rounding import once, with_gradient

Tensor = torch.Tensor


def add_inputs(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    return [normal(g, dtype, 20, 16), 0, integers(g, 20, 400), normal(g, dtype, 400, 16)]


def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    return torch.index_add(x, dim, index, source)


def by_matrix(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """As a product with the one-hot matrix."""
    return x + F.one_hot(index, len(x)).to(x.dtype).t() @ source


def one_by_one(dtype: torch.dtype | None = None, last: bool = False) -> Any:
    """Rows added in reverse, rounded to a dtype after each; last: a row that is there already is overwritten."""

    def run(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
        rows = list(x)
        for place, row in reversed(list(zip(index.tolist(), source, strict=True))):
            total = (x[place] if last else rows[place]) + row
            rows[place] = total if dtype is None else total.to(dtype).to(total.dtype)
        return torch.stack(rows)

    return run


ADD = Task("index_add", "scatter", once(by_matrix), index_add, add_inputs, "Torch.index_add")


def embedding_inputs(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    return [integers(g, 30, 8, 40), normal(g, dtype, 30, 16), 3]


def embedding(index: Tensor, w: Tensor, padding: int) -> Tensor:
    return F.embedding(index, w, padding_idx=padding)


def row_gradient(g: Tensor, index: Tensor, w: Tensor, padding: int, keep: bool = False) -> tuple[Any, ...]:
    """Sorted by index, then added up a segment."""
    order = torch.argsort(index.flatten(), stable=True)
    flat, rows = index.flatten()[order], g.reshape(-1, g.shape[-1])[order]
    total = torch.zeros_like(w).index_add(0, flat, rows)
    return None, total if keep else total.index_fill(0, torch.tensor([padding]), 0.0), None


EMBEDDING = Task(
    "embedding",
    "scatter",
    with_gradient(embedding, row_gradient),
    embedding,
    embedding_inputs,
    "Functional.embedding",
    backward=True,
)

GATHER = Task(
    "gather",
    "scatter",
    lambda x, d, i: torch.take_along_dim(x, i, d),
    torch.gather,
    lambda dtype, g: [normal(g, dtype, 30, 20), 1, integers(g, 20, 30, 25)],
    "Torch.gather",
    backward=True,
)
