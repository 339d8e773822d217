"""float4 numbers as tensors hold them: two a byte, the first in the low four bits."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from pytest_probe.numerics.dtypes import PACKED, AnyArray, dtype_name, numpy_dtype

_FLOAT4 = np.dtype(ml_dtypes.float4_e2m1fn)


def is_packed(array: AnyArray) -> bool:
    return dtype_name(array.dtype) == PACKED


def unpacked(pairs: AnyArray, axis: int = -1) -> AnyArray:
    """float4_e2m1fn numbers of a packed array, or of its bytes: twice as many along the axis.

    torch packs along the dimension in which elements lie side by side: the last of a row-major tensor, the one before
    of a transposed matrix.
    """
    data = np.moveaxis(pairs, axis, -1).view(np.uint8)
    halves = np.stack([data & 0xF, data >> 4], axis=-1).reshape(*data.shape[:-1], -1)
    return np.moveaxis(halves.view(_FLOAT4), -1, axis)


def packed(values: AnyArray, axis: int = -1) -> AnyArray:
    """The packed array of float4_e2m1fn numbers: half as many along the axis. Raises ValueError where they are odd."""
    codes = np.moveaxis(values, axis, -1).astype(_FLOAT4, copy=False).view(np.uint8)
    if codes.shape[-1] % 2:
        raise ValueError(
            f"{codes.shape[-1]} float4 numbers along axis {axis}, expected an even number: two share a byte"
        )
    pairs = (codes[..., ::2] & 0xF) | (codes[..., 1::2] << 4)
    return np.moveaxis(pairs.astype(np.uint8).view(numpy_dtype(PACKED)), -1, axis)
