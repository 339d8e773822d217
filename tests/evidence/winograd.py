"""Winograd's F(4x4, 3x3): a convolution by a quarter of the products, as libraries for accelerators compute it."""

from __future__ import annotations

import torch
import torch.nn.functional as F

INPUT = (
    (4, 0, -5, 0, 1, 0), (0, -4, -4, 1, 1, 0), (0, 4, -4, -1, 1, 0),
    (0, -2, -1, 2, 1, 0), (0, 2, -1, -2, 1, 0), (0, 4, 0, -5, 0, 1),
)  # fmt: skip
FILTER = (
    (1 / 4, 0, 0), (-1 / 6, -1 / 6, -1 / 6), (-1 / 6, 1 / 6, -1 / 6),
    (1 / 24, 1 / 12, 1 / 6), (1 / 24, -1 / 12, 1 / 6), (0, 0, 1),
)  # fmt: skip
OUTPUT = ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1))


def winograd(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, stride: int, padding: int) -> torch.Tensor:
    """A convolution of 3 x 3 kernels and stride 1, in the dtype of x from step to step."""
    before, kernel, after = (x.new_tensor(table) for table in (INPUT, FILTER, OUTPUT))
    height, width = (size + 2 * padding - 2 for size in x.shape[-2:])
    down, right = -height % 4, -width % 4
    padded = F.pad(x, (padding, padding + right, padding, padding + down))
    tiles = before @ padded.unfold(2, 6, 4).unfold(3, 6, 4) @ before.t()
    products = torch.einsum("nchwij,ocij->nohwij", tiles, kernel @ weight @ kernel.t())
    blocks = after @ products @ after.t()
    out = blocks.permute(0, 1, 2, 4, 3, 5).flatten(4, 5).flatten(2, 3)
    return out[..., :height, :width] + bias.view(-1, 1, 1)
