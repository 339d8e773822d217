"""PyTorch: tensors from NumPy's arrays and back, and how they lie in memory."""

from __future__ import annotations

import math
from collections.abc import Mapping

import ml_dtypes
import numpy as np
import torch

from pytest_probe.errors import Unsupported, UnsupportedDtype
from pytest_probe.numerics.arrays import contiguous

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
    return _on_memory_of(array).clone()


def to_wide_tensor(array: np.ndarray, dtype: str) -> torch.Tensor:
    """The same with floats as dtype (complex: of twice that width), copied once."""
    narrow = _on_memory_of(array)
    wide = widened(narrow, dtype)
    return narrow.clone() if wide is narrow else wide


def _on_memory_of(array: np.ndarray) -> torch.Tensor:
    """A tensor on the array's memory; on a copy where that is not contiguous."""
    plain = contiguous(array)
    special = TO_TORCH.get(plain.dtype)
    if special is None:
        return torch.from_numpy(plain)
    carrier, dtype = special
    return torch.from_numpy(plain.view(np.int16 if carrier is torch.int16 else np.uint8)).view(dtype)


def to_array(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's values, in its dtype. Raises Unsupported where NumPy has no place for them."""
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        raise Unsupported(f"a tensor of layout {tensor.layout}", "layout not supported")
    if tensor.is_quantized:
        raise Unsupported("a quantized tensor", "layout not supported")
    if tensor.dtype is torch.complex32:
        raise UnsupportedDtype("a tensor of dtype complex32, which NumPy does not have")
    if tensor._is_zerotensor():
        tensor = tensor.clone()
    elif tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    special = CARRIERS.get(tensor.dtype)
    if special is None:
        return np.asarray(tensor.numpy())
    carrier, scalar = special
    return np.asarray(tensor.view(carrier).numpy().view(scalar))


# Dtypes with a NaN that every device can fill memory with.
WITH_NAN = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128))


def widened(tensor: torch.Tensor, dtype: str) -> torch.Tensor:
    """The tensor with floats as dtype (complex: of twice that width); integers and booleans as they are."""
    if tensor.is_complex():
        return tensor.to(TORCH_COMPLEX[dtype])
    return tensor.to(getattr(torch, dtype)) if tensor.is_floating_point() else tensor


def laid_out(tensor: torch.Tensor, strides: tuple[int, ...] | None, offset: int) -> torch.Tensor:
    """The tensor with these strides, None: in order, in memory of its own that begins so many elements before it; a
    stride of 0 is an expanded dimension."""
    expanded = [dim for dim, stride in enumerate(strides or ()) if stride == 0 and tensor.shape[dim]]
    own = tensor
    for dim in expanded:
        own = own.narrow(dim, 0, 1)
    made = _room(own, own.contiguous().stride() if strides is None else strides, offset).copy_(own)
    return made.expand(tensor.shape) if expanded else made


def _room(tensor: torch.Tensor, strides: tuple[int, ...], offset: int) -> torch.Tensor:
    """Memory for a tensor of this shape, dtype and device."""
    steps = zip(tensor.shape, strides, strict=True)
    span = 1 + sum((extent - 1) * stride for extent, stride in steps) if tensor.numel() else 0
    if not offset and span <= tensor.numel():
        return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
    # What lies between its elements no kernel may read, and NaN shows who does. What lies before may be read through
    # as_strided: the same on both sides.
    between = math.nan if tensor.dtype in WITH_NAN else 0
    memory = torch.full((offset + span,), between, dtype=tensor.dtype, device=tensor.device)
    memory[:offset] = 0
    return memory.as_strided(tensor.shape, strides, offset)


def copied(tensor: torch.Tensor, strides: tuple[int, ...] | None, offset: int) -> torch.Tensor:
    """A copy to write to, laid out alike but for expanded dimensions, which nothing can write to."""
    plain = (strides is None and not offset) or (strides is not None and 0 in strides)
    return tensor.clone() if plain else laid_out(tensor, strides, offset)
