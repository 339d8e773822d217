"""PyTorch: 16-bit CPU kernels that round inside in earlier releases and no longer in later ones.

Which of them are installed no version tells for sure: each kernel is run on a witness, numbers of which a result that
was rounded inside is another. Written as they run: each takes the dtype to round to and then the kernel's own
arguments, in float64.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from msgspec import Struct
from torch.utils._python_dispatch import _disable_current_modes

from pytest_probe.frameworks.torch.cpu16.formulas import NONE, huber
from pytest_probe.frameworks.torch.cpu16.sequential import rounded_once
from pytest_probe.frameworks.torch.state import plain_convolutions

ATEN = torch.ops.aten
# From so many elements of the matrix on, oneDNN takes the product where it has the dtype.
OF_ONEDNN = 16**3
Witness = Callable[[torch.dtype], tuple[Any, ...]]


class Earlier(Struct, frozen=True):
    """function stands in for the kernel where that gives, of the witness' arguments, other than the rounded result."""

    kernel: Any
    function: Callable[..., Any]
    witness: Witness

    def is_installed(self, dtype: torch.dtype) -> bool:
        with _disable_current_modes(), torch.no_grad():
            args = self.witness(dtype)
            wide = [arg.double() if isinstance(arg, torch.Tensor) and arg.dtype is dtype else arg for arg in args]
            if self.kernel in LAST_IS_DTYPE:
                wide[-1] = torch.float64
            try:
                return not torch.equal(self.kernel(*args), self.kernel(*wide).to(dtype))
            except RuntimeError:  # it has no kernel for this dtype
                return False


def softmax_backward(dtype: torch.dtype, grad: torch.Tensor, y: torch.Tensor, dim: int, to: torch.dtype) -> Any:
    """The sum of each row is rounded, along the last dimension."""
    if not y.ndim or dim % y.ndim != y.ndim - 1:
        return NotImplemented
    return (grad - rounded_once((grad * y).sum(-1, keepdim=True), dtype)) * y


def log_softmax_backward(dtype: torch.dtype, grad: torch.Tensor, y: torch.Tensor, dim: int, to: torch.dtype) -> Any:
    """The same."""
    if not y.ndim or dim % y.ndim != y.ndim - 1:
        return NotImplemented
    return grad - y.exp() * rounded_once(grad.sum(-1, keepdim=True), dtype)


def dot(dtype: torch.dtype, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Products are rounded, their sum is not."""
    return rounded_once(x * y, dtype).sum()


def addmv(
    dtype: torch.dtype,
    x: torch.Tensor,
    matrix: torch.Tensor,
    vector: torch.Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> Any:
    """Products are rounded, their sum is not, where the matrix lies row by row and no quicker kernel takes it."""
    by_columns = matrix.stride(0) == 1 and matrix.stride(1) >= max(1, matrix.shape[0])
    single = alpha == 1 and (beta == 0 or dtype is torch.float16)
    library = matrix.numel() > OF_ONEDNN and not plain_convolutions(str(dtype).removeprefix("torch."))
    if by_columns or single or library:
        return NotImplemented
    total = rounded_once(matrix * vector, dtype).sum(-1) * rounded_once(matrix.new_tensor(alpha), dtype)
    return total if beta == 0 else rounded_once(x * rounded_once(x.new_tensor(beta), dtype), dtype) + total


def weights_of_bags_backward(
    dtype: torch.dtype,
    grad: torch.Tensor,
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    bags: torch.Tensor,
    mode: int,
    padding: int = -1,
) -> Any:
    """A dot product of each entry and its bag's gradient."""
    if bags.numel() != indices.numel():
        return NotImplemented
    found = rounded_once(grad[bags] * weight[indices], dtype).sum(-1)
    return torch.where(indices == padding, 0.0, found)


def _unit(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps


def _small_beside_one(dtype: torch.dtype, other: float) -> tuple[Any, ...]:
    """A gradient whose sum loses its second number, and softmax's output that has both count alike."""
    grad = torch.tensor([1.0, _unit(dtype) / 4], dtype=dtype, device="cpu")
    return grad, torch.full((2,), other, dtype=dtype, device="cpu"), 0, dtype


def _nearly_equal(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """(1 + u)^2 - (1 + 2u), of which the product of two 16-bit numbers keeps u^2 and a rounded one nothing."""
    u = _unit(dtype)
    return tuple(torch.tensor(row, dtype=dtype, device="cpu") for row in ([1 + u, -1.0], [1 + u, 1 + 2 * u]))  # type: ignore[return-value]


def _rows(dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """Two rows, since one would be a column as well."""
    x, y = _nearly_equal(dtype)
    return y.new_zeros(2), x.repeat(2, 1), y


def _bag(dtype: torch.dtype) -> tuple[Any, ...]:
    x, y = _nearly_equal(dtype)
    first = torch.zeros(1, dtype=torch.long, device="cpu")
    return x[None], y[None], first, first, first, 0


def _above_delta(dtype: torch.dtype) -> tuple[Any, ...]:
    x = torch.tensor(7.7890625, dtype=dtype, device="cpu")
    return x, torch.zeros_like(x), NONE, 0.3


def _scaled(*args: torch.Tensor) -> torch.Tensor:
    return torch.addmv(*args, alpha=0.5)


LAST_IS_DTYPE = frozenset({ATEN._softmax_backward_data.default, ATEN._log_softmax_backward_data.default})
KERNELS: Mapping[Any, Earlier] = {
    func: Earlier(func, function, witness)
    for func, function, witness in (
        (ATEN._softmax_backward_data.default, softmax_backward, functools.partial(_small_beside_one, other=1.0)),
        (
            ATEN._log_softmax_backward_data.default,
            log_softmax_backward,
            functools.partial(_small_beside_one, other=0.0),
        ),
        (ATEN.dot.default, dot, _nearly_equal),
        (ATEN._embedding_bag_per_sample_weights_backward.default, weights_of_bags_backward, _bag),
    )
} | {ATEN.addmv.default: Earlier(_scaled, addmv, _rows)}
STEPS: Mapping[Any, Earlier] = {
    ATEN.huber_loss.default: Earlier(ATEN.huber_loss.default, huber, _above_delta),
}


def installed(known: Mapping[Any, Earlier], dtype: torch.dtype) -> dict[Any, Callable[..., Any]]:
    """What stands in for the kernels of this process' torch."""
    return {func: earlier.function for func, earlier in known.items() if earlier.is_installed(dtype)}
