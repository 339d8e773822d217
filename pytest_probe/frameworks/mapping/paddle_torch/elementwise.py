"""What has one element of the result for each of the arguments, or for each pair of them, where no single API of
torch's makes Paddle's calls. Each function takes Paddle's arguments, and torch's tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from pytest_probe.frameworks.mapping.paddle_torch import dims, less_than_one

# torch.Tensor: what most of its functions return is not said.
Tensor: TypeAlias = Any
F = torch.nn.functional


def clip(x: Tensor, min: Any, max: Any) -> Tensor:
    ends = [end.reshape(()) if isinstance(end, torch.Tensor) and end.numel() == 1 else end for end in (min, max)]
    return x.clone() if ends == [None, None] else torch.clamp(x, *ends)


def scale(x: Tensor, scale: Any, bias: float, bias_after_scale: bool, act: str | None) -> Tensor:
    result = x * scale + bias if bias_after_scale else (x + bias) * scale
    return result.to(x.dtype) if act is None else getattr(torch, act)(result)


def selu(x: Tensor, scale: float, alpha: float) -> Tensor:
    both = float(np.float32(scale) * np.float32(alpha))
    return torch.where(x > 0, scale * x, both * torch.expm1(x))


def prelu(x: Tensor, weight: Tensor, data_format: str) -> Tensor:
    last = not data_format.startswith("NC") and x.dim() > 2
    result = F.prelu(x.movedim(-1, 1) if last else x, weight)
    return result.movedim(1, -1) if last else result


def shifted_right(x: Tensor, y: Tensor, is_arithmetic: bool) -> Tensor:
    if is_arithmetic or x.dtype == torch.uint8:
        return torch.bitwise_right_shift(x, y)
    bits = torch.iinfo(x.dtype).bits
    kept = torch.where(y == 0, -1, (1 << (bits - y.clamp(1, bits - 1))) - 1).to(x.dtype)
    return torch.bitwise_right_shift(x, y) & kept


def add_n(inputs: Tensor | Sequence[Tensor]) -> Tensor:
    if isinstance(inputs, torch.Tensor):
        return inputs.clone()
    result = inputs[0].clone()
    for each in inputs[1:]:
        result = result + each
    return result


def reciprocal_times(x: Tensor, y: Any) -> Tensor:
    return torch.div(
        y
        if isinstance(y, torch.Tensor)
        else torch.full_like(x if x.is_floating_point() or x.is_complex() else x.to(torch.get_default_dtype()), y),
        x,
    )


def swiglu(x: Tensor, y: Tensor | None) -> Tensor:
    gate, value = x.chunk(2, dim=-1) if y is None else (x, y)
    return F.silu(gate) * value


def dropout(x: Tensor, p: Any, axis: Any, training: bool, inplace: bool, mode: str) -> Tensor:
    p = float(p)
    if mode == "downscale_in_infer":
        return (_dropped(x, p, axis) if training else x) * less_than_one(p)
    return _dropped(x, p, axis) if training else x.clone()


def _dropped(x: Tensor, p: float, axis: Any) -> Tensor:
    if axis is None:
        return F.dropout(x, p)
    kept = [size if dim in dims(axis, x.dim()) else 1 for dim, size in enumerate(x.shape)]
    return x * F.dropout(torch.ones(kept, dtype=x.dtype, device=x.device), p)
