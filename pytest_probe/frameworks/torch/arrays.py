"""PyTorch: tensors from NumPy's arrays and back, and how they lie in memory."""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes
import numpy as np
import torch

from pytest_probe.errors import Unsupported
from pytest_probe.numerics.contiguous import in_order

# NumPy has none of these: they cross as integers of the same width.
CARRIERS: Mapping[torch.dtype, tuple[torch.dtype, type]] = {
    torch.bfloat16: (torch.int16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn),
    torch.float8_e5m2: (torch.uint8, ml_dtypes.float8_e5m2),
    torch.float8_e4m3fnuz: (torch.uint8, ml_dtypes.float8_e4m3fnuz),
    torch.float8_e5m2fnuz: (torch.uint8, ml_dtypes.float8_e5m2fnuz),
}
if hasattr(torch, "float8_e8m0fnu"):  # since torch 2.7
    CARRIERS = {**CARRIERS, torch.float8_e8m0fnu: (torch.uint8, ml_dtypes.float8_e8m0fnu)}
TO_TORCH = {np.dtype(scalar): (carrier, dtype) for dtype, (carrier, scalar) in CARRIERS.items()}
TORCH_COMPLEX = {"float64": torch.complex128, "float32": torch.complex64}


def to_tensor(array: np.ndarray) -> torch.Tensor:
    """A tensor of its own memory, which torch may resize, with the array's values and dtype."""
    plain = in_order(array)
    special = TO_TORCH.get(plain.dtype)
    if special is None:
        return torch.from_numpy(plain).clone()
    carrier, dtype = special
    return torch.from_numpy(plain.view(np.int16 if carrier is torch.int16 else np.uint8)).clone().view(dtype)


def to_array(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's values, in its dtype. Raises Unsupported where NumPy has no place for them."""
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        raise Unsupported(f"a tensor of layout {tensor.layout}", "layout not supported")
    if tensor.is_quantized:
        raise Unsupported("a quantized tensor", "layout not supported")
    if tensor.dtype is torch.complex32:
        raise Unsupported("a tensor of dtype complex32, which NumPy has not", "dtype not supported")
    tensor = tensor.clone() if tensor._is_zerotensor() else tensor.resolve_conj().resolve_neg()
    special = CARRIERS.get(tensor.dtype)
    if special is None:
        return np.asarray(tensor.numpy())
    carrier, scalar = special
    return np.asarray(tensor.view(carrier).numpy().view(scalar))


def widened(tensor: torch.Tensor, dtype: str) -> torch.Tensor:
    """The tensor with floats as dtype (complex: of twice that width); integers and booleans as they are."""
    if tensor.is_complex():
        return tensor.to(TORCH_COMPLEX[dtype])
    return tensor.to(getattr(torch, dtype)) if tensor.is_floating_point() else tensor


def restrided(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The tensor laid out with these strides, in memory of its own; a stride of 0 is an expanded dimension."""
    expanded = [dim for dim, stride in enumerate(strides) if stride == 0]
    own = tensor
    for dim in expanded:
        own = own.narrow(dim, 0, min(1, own.shape[dim]))
    made = torch.empty_strided(own.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(own)
    return made.expand(tensor.shape) if expanded else made


def copied(tensor: torch.Tensor, strides: tuple[int, ...] | None) -> torch.Tensor:
    """A copy to write to, laid out alike but for expanded dimensions, which nothing can write to."""
    return tensor.clone() if strides is None or 0 in strides else restrided(tensor, strides)
