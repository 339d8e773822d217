"""PyTorch: convolutions as Winograd computes them, tile by tile: what a mode rounds there are the transformed operands.

Transforms come of polynomials (Cook and Toom): values at points, products of these, and back.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# A bilinear function of two operands, computed as a mode computes it.
Product = Callable[[Callable[[Tensor, Tensor], Tensor], Tensor, Tensor], Tensor]

_POINTS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5)
_KERNELS = (3, 5)
# Sums over channels, and over tiles.
_SUMS = functools.partial(torch.einsum, "nchwij,ocij->nohwij")
_GRADIENT_SUMS = functools.partial(torch.einsum, "nchwij,nohwij->ocij")


def applies(x: Tensor, weight: Tensor, *how: Any) -> bool:
    """Is it a convolution that libraries compute like that?"""
    stride, padding, dilation, transposed, _, groups = how
    plain = not transposed and groups == 1 and all(step == 1 for step in (*stride, *dilation))
    height, width = weight.shape[-2:]
    fits = weight.ndim == 4 and height == width and height in _KERNELS and max(padding) < height
    return plain and fits and x.dtype == torch.float64 and x.numel() > 0


def forward(x: Tensor, weight: Tensor, padding: Sequence[int], outputs: int, product: Product) -> Tensor:
    """The convolution in tiles of so many outputs on a side: A^T [(G g G^T) * (B^T d B)] A of each tile d of x and each
    kernel g, summed over channels before A. x has the shape (n, c, h, w), weight (o, c, k, k).

    Lavin and Gray, Fast Algorithms for Convolutional Neural Networks (2016), whose A, B and G these are up to scale.
    """
    after, kernel, before = _transforms(outputs, weight.shape[-1])
    tiles, (height, width) = _tiles(x, weight.shape[-1], padding, outputs)
    sums = product(_SUMS, before @ tiles @ before.t(), kernel @ weight @ kernel.t())
    blocks = after @ sums @ after.t()
    return blocks.permute(0, 1, 2, 4, 3, 5).flatten(4, 5).flatten(2, 3)[..., :height, :width].contiguous()


def backward(
    gradient: Tensor, x: Tensor, weight: Tensor, padding: Sequence[int], outputs: int, product: Product
) -> tuple[Tensor, Tensor]:
    """Gradients of x and of the weight: a convolution of the gradient, and the transforms turned round."""
    taps = weight.shape[-1]
    rest = [taps - 1 - size for size in padding]
    of_x = forward(gradient, weight.transpose(0, 1).flip(2, 3), rest, outputs, product)
    after, kernel, before = _transforms(outputs, taps)
    tiles, (height, width) = _tiles(x, taps, padding, outputs)
    padded = F.pad(gradient, (0, -width % outputs, 0, -height % outputs))
    blocks = padded.unfold(2, outputs, outputs).unfold(3, outputs, outputs)
    sums = product(_GRADIENT_SUMS, before @ tiles @ before.t(), after.t() @ blocks @ after)
    return of_x, kernel.t() @ sums @ kernel


def _tiles(x: Tensor, taps: int, padding: Sequence[int], outputs: int) -> tuple[Tensor, tuple[int, int]]:
    """Tiles of x that overlap, and the size of the output."""
    down, right = padding
    height, width = x.shape[2] + 2 * down - taps + 1, x.shape[3] + 2 * right - taps + 1
    padded = F.pad(x, (right, right + -width % outputs, down, down + -height % outputs))
    size = outputs + taps - 1
    return padded.unfold(2, size, outputs).unfold(3, size, outputs), (height, width)


@functools.cache
def _transforms(outputs: int, taps: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of sums to outputs, of kernels, and of inputs."""
    size = outputs + taps - 1

    def values(terms: int) -> Tensor:
        at_infinity = [0.0] * (terms - 1) + [1.0]
        rows = [[point**term for term in range(terms)] for point in _POINTS[: size - 1]]
        return torch.tensor([*rows, at_infinity], dtype=torch.float64)

    return values(outputs).t(), values(taps), torch.linalg.inv(values(size)).t()
