"""Are two arrays the same, or as near as one rounding leaves them?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pytest_probe.numerics.arrays import blocks
from pytest_probe.numerics.dtypes import AnyArray, is_complex, is_floating, widen
from pytest_probe.numerics.ulp import ulp

# Share of the largest element: two float32 runs differ by less, 16-bit steps inside by more.
CLOSE_SHARE = 2.0**-18
# Elements of a piece whose bits are compared: it stays in a core's cache.
_BYTES = 1 << 15


def widened_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The reference's dtype for this dtype: float64, complex128, or itself."""
    if is_complex(dtype):
        return np.dtype(np.complex128)
    return np.dtype(np.float64) if is_floating(dtype) else dtype


def reference_array(array: AnyArray) -> AnyArray:
    """An argument's values in the reference's dtype."""
    return array.astype(widened_dtype(array.dtype), copy=False)


def is_reference_array(found: AnyArray, array: AnyArray) -> bool:
    """Has an array the bits that an argument has in the reference's dtype?"""
    if found.shape != array.shape or found.dtype != widened_dtype(array.dtype):
        return False
    return all(same_bytes(one, reference_array(other)) for one, other in blocks(found, array, _BYTES))


def same_bytes(first: AnyArray, second: AnyArray) -> bool:
    """Have two arrays the same dtype, shape and bits?"""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    # Copies of small arrays cost less than views of them; large ones are compared where they are.
    if first.size < 4096:
        return first.tobytes() == second.tobytes()
    return all(np.array_equal(_bits(one), _bits(other)) for one, other in blocks(first, second, _BYTES))


def _bits(array: AnyArray) -> AnyArray:
    """The bits of a piece, in the widest words that it has."""
    return np.ascontiguousarray(array).view(np.uint64 if array.nbytes % 8 == 0 else np.uint8)


def equal_in_float64(first: AnyArray, second: AnyArray) -> bool:
    """Do two float64 results agree but for their own rounding?"""
    # Chosen: far above what float64 loses in a sum, far below what two different functions differ by.
    return np.allclose(first, second, rtol=1e-9, atol=1e-12, equal_nan=True)


def near(first: AnyArray, second: AnyArray) -> bool:
    """Are two arrays the same, or nearer than any 16-bit rounding inside the call leaves them?"""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if same_bytes(first, second):
        return True
    allowed = CLOSE_SHARE * max((_largest(widen(one)) for one, _ in blocks(first, second)), default=0.0)
    pairs = ((widen(one), widen(other)) for one, other in blocks(first, second))
    return all(np.allclose(one, other, rtol=0.0, atol=allowed, equal_nan=True) for one, other in pairs)


def _largest(values: AnyArray) -> float:
    return float(np.max(np.abs(values), initial=0.0, where=np.isfinite(values)))


def distance(first: Mapping[str, Any], second: Mapping[str, Any]) -> float:
    """The sum of the differences between two sides beyond half an ulp of the first's dtype, which its own rounding
    explains; inf where NaN or shapes differ."""
    total = 0.0
    for name in first.keys() & second.keys():
        if not all(isinstance(side[name], (np.ndarray, float)) for side in (first, second)):
            continue
        one, other = np.asarray(first[name]), np.asarray(second[name])
        if one.shape != other.shape:
            return np.inf
        with np.errstate(invalid="ignore", over="ignore"):
            total += sum(_beyond_rounding(*pair) for pair in blocks(one, other))
    return total


def _beyond_rounding(first: AnyArray, second: AnyArray) -> float:
    one, other = widen(first), widen(second)
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    apart = np.where(same, 0.0, np.abs(one - other) - _half_ulp(first.dtype, other)).clip(min=0.0)
    return float(np.sum(np.where(np.isnan(apart), np.inf, apart)))


def _half_ulp(dtype: np.dtype[Any], reference: AnyArray) -> AnyArray | float:
    return ulp(reference, dtype) / 2 if is_floating(dtype) or is_complex(dtype) else 0.0
