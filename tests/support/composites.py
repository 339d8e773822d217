"""Operators of a project that are Python: torch's kernels one after the other, right and with a fault in 16 bit."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.support.self_faults import normal


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def swiglu(x: Tensor, gate: Tensor) -> Tensor:
    return F.silu(x) * gate


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    left, right = x.chunk(2, -1)
    return x * cosine + torch.cat((-right, left), -1) * sine


def mlp(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    return F.gelu(x @ first) @ second


def added_in_turn(x: Tensor) -> Tensor:
    total = torch.zeros_like(x.select(-1, 0))
    for column in x.unbind(-1):
        total = total + column
    return total


def swiglu_off(x: Tensor, gate: Tensor) -> Tensor:
    return swiglu(x, gate) * (1.03 if x.itemsize == 2 else 1.0)


def stale_row(x: Tensor, weight: Tensor) -> Tensor:
    found = rms_norm(x, weight)
    return torch.cat((found[:-1], found[:1])) if x.itemsize == 2 else found


def without_columns(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    hidden = F.gelu(x @ first)
    if x.itemsize == 2:
        hidden = F.pad(hidden[:, :-4], (0, 4))
    return hidden @ second


_ROWS = normal(16, 64), normal(64, seed=1)
_TWO = normal(16, 64), normal(16, 64, seed=1)
_PRODUCTS = normal(16, 64), normal(64, 128, seed=1), normal(128, 64, seed=2)
RIGHT = {
    "rms_norm": _ROWS,
    "swiglu": _TWO,
    "rotated": (*_ROWS, normal(64, seed=2)),
    "mlp": _PRODUCTS,
    "added_in_turn": (normal(8, 512).abs(),),
}
WRONG = {"swiglu_off": _TWO, "stale_row": _ROWS, "without_columns": _PRODUCTS}
