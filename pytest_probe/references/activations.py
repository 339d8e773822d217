"""Activations without a function of torch's."""

from __future__ import annotations

import torch

from pytest_probe.references.arguments import at_least_float32, check_shapes

# Of the sigmoid that comes nearest to the normal distribution's (Hendrycks and Gimpel 2016, arXiv:1606.08415).
STEEPNESS = 1.702


def swiglu(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """silu(a) * b, where a and b are the halves of x along dim (Shazeer 2020, arXiv:2002.05202). x: an even number of
    places along dim; the result has half as many."""
    check_shapes(
        -x.dim() <= dim < x.dim() and x.shape[dim] % 2 == 0,
        f"x of shape {list(x.shape)} and dim {dim}",
        "an even number of places along dim",
    )
    first, second = x.chunk(2, dim)
    return torch.nn.functional.silu(first) * second


def fast_gelu(x: torch.Tensor) -> torch.Tensor:
    """x * sigmoid(1.702 x), the fast form of GELU (Hendrycks and Gimpel 2016, arXiv:1606.08415)."""
    wide = at_least_float32(x)
    return (wide * torch.sigmoid(STEEPNESS * wide)).to(x.dtype)
