"""PyTorch: kernels whose 16-bit versions are known to round inside, written as the steps between which they do.

Most kernels compute 16-bit tensors in float32 and round once; these do not, on torch's own CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from pytest_probe.frameworks import torch_attention
from pytest_probe.frameworks.torch_attention import factor, scores_of

ATEN = torch.ops.aten
CHUNKS = 256


def rsqrt(x: torch.Tensor) -> torch.Tensor:
    """The square root is rounded before it is inverted."""
    root: torch.Tensor = ATEN.sqrt.default(x)
    return root.reciprocal()


def add(x: torch.Tensor, y: torch.Tensor, alpha: float = 1) -> torch.Tensor:
    """What is added is rounded after its scaling, in the last elements of a vectorised loop."""
    return NotImplemented if alpha == 1 else x + y * alpha


def sub(x: torch.Tensor, y: torch.Tensor, alpha: float = 1) -> torch.Tensor:
    return NotImplemented if alpha == 1 else x - y * alpha


def rsub(x: torch.Tensor, y: torch.Tensor, alpha: float = 1) -> torch.Tensor:
    return sub(y, x, alpha)


def addcmul(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, *, value: float = 1) -> torch.Tensor:
    return x + y * z * value


def addcdiv(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, *, value: float = 1) -> torch.Tensor:
    return x + y / z * value


def lerp(x: torch.Tensor, end: torch.Tensor, weight: torch.Tensor | float) -> torch.Tensor:
    return x + (end - x) * weight


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The probabilities are rounded before they weigh the values; the scores are not."""
    scores = _exactly(lambda: scores_of(q, k, is_causal, attn_mask, scale, torch.matmul))
    weights = _computed(lambda: torch.softmax(scores, -1))
    return weights @ v, _computed(lambda: torch.logsumexp(scores, -1))


def attention_backward(
    grad: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The probabilities, and the gradients of the scores, are rounded before the products that they enter."""
    scores = _exactly(lambda: scores_of(q, k, is_causal, attn_mask, scale, torch.matmul))
    exact = _exactly(lambda: torch.softmax(scores, -1))
    inner = _exactly(lambda: exact * (grad @ v.mT - (grad * out).sum(-1, keepdim=True)) * factor(q, scale))
    weights, slopes = _computed(lambda: exact), _computed(lambda: inner)
    return slopes @ k, slopes.mT @ q, weights.mT @ grad


def _exactly(make: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Made without rounding, as inside a kernel."""
    with _disable_current_modes():
        return make()


def _computed(make: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Made without rounding, and rounded where the next step reads it."""
    return ATEN.clone.default(_exactly(make))  # type: ignore[no-any-return]


def layer_norm_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    shape: Sequence[int],
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    wanted: Sequence[bool],
) -> tuple[Any, ...]:
    """Gradients of weight and bias are accumulated row by row in the tensors' dtype."""
    exact = ATEN.native_layer_norm_backward.default(grad, x, shape, mean, rstd, weight, bias, wanted)
    normal = (x - mean) * rstd
    rows = [accumulated(grad * normal, shape), accumulated(grad, shape)]
    return (exact[0], *(row if asked else None for row, asked in zip(rows, wanted[1:], strict=True)))


def accumulated(values: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """The sum over all but the trailing `shape`, as a chain of at most 256 additions."""
    total, *rest = (chunk.sum(0) for chunk in values.reshape(-1, *shape).chunk(CHUNKS))
    for chunk in rest:
        total = total + chunk
    return total


def in_place(composed: Callable[..., Any]) -> Callable[..., Any]:
    """The same steps for the version that writes to its first argument."""

    def function(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        result = composed(x, *args, **kwargs)
        return result if result is NotImplemented else x.copy_(result)

    return function


COMPOSED: Mapping[Any, Callable[..., Any]] = {
    ATEN.rsqrt.default: rsqrt,
    ATEN.add.Tensor: add,
    ATEN.sub.Tensor: sub,
    ATEN.rsub.Tensor: rsub,
    ATEN.addcmul.default: addcmul,
    ATEN.addcdiv.default: addcdiv,
    ATEN.lerp.Scalar: lerp,
    ATEN.lerp.Tensor: lerp,
    torch_attention.FORWARD: attention,
    torch_attention.BACKWARD: attention_backward,
    ATEN.native_layer_norm_backward.default: layer_norm_backward,
}
COMPOSED_IN_PLACE: Mapping[Any, Callable[..., Any]] = {
    ATEN.add_.Tensor: in_place(add),
    ATEN.sub_.Tensor: in_place(sub),
    ATEN.addcmul_.default: in_place(addcmul),
    ATEN.addcdiv_.default: in_place(addcdiv),
    ATEN.lerp_.Scalar: in_place(lerp),
    ATEN.lerp_.Tensor: in_place(lerp),
    ATEN.rsqrt_.default: in_place(rsqrt),
}
