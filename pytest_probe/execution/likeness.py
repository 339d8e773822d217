"""Is what a run gave like what was recorded, like another run, like what it was given?"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from pytest_probe.errors import NoReference
from pytest_probe.frameworks.base import Leaf, Run
from pytest_probe.numerics.dtypes import AnyArray, is_complex, is_floating, numpy_dtype, widen
from pytest_probe.numerics.ulp import ulp
from pytest_probe.records.model import Call, TensorSpec, leaves

# Of the largest element: what one float32 run may differ from another by, and 16-bit steps inside do not stay below.
NEAR = 2.0**-18


def check_wide(run: Run) -> None:
    """Raises NoReference where a reference of float64 tensors gave narrower ones: it has a dtype written into it."""
    for name, value in run.outputs.items():
        if isinstance(value, np.ndarray) and value.dtype != widened_dtype(value.dtype):
            raise NoReference(
                f"the reference gave {name} as {value.dtype.name} where its arguments are float64; "
                "take dtypes from the arguments instead of writing them down"
            )


def output_specs(call: Call) -> list[TensorSpec]:
    return [value for _, value in recorded_leaves(call) if isinstance(value, TensorSpec)]


def recorded_leaves(call: Call) -> list[tuple[str, Any]]:
    """The recorded outputs by name, but for None."""
    return [(name, value) for name, value in leaves(call.outputs, "output") if value is not None]


def shapes_fit(run: Run, call: Call) -> bool:
    """Has the run the recorded number of outputs, names and shapes?"""
    if call.outputs is None:
        return True
    wanted = dict(recorded_leaves(call))
    if set(wanted) != set(run.outputs):
        return False
    return all(
        not isinstance(spec, TensorSpec) or np.shape(run.outputs[name]) == spec.shape for name, spec in wanted.items()
    )


def _dtype_pairs(run: Run, call: Call) -> Iterator[tuple[np.dtype[Any], np.dtype[Any]]]:
    for name, spec in recorded_leaves(call):
        value = run.outputs.get(name)
        if isinstance(spec, TensorSpec) and isinstance(value, np.ndarray):
            yield value.dtype, numpy_dtype(spec.dtype)


def dtypes_fit(run: Run, call: Call) -> bool:
    """Has a run in the recorded dtypes the recorded output dtypes?"""
    return all(found == wanted for found, wanted in _dtype_pairs(run, call))


def widened_dtypes_fit(run: Run, call: Call) -> bool:
    """Has a reference run the recorded output dtypes, floats taken as float64?"""
    return all(widened_dtype(found) == widened_dtype(wanted) for found, wanted in _dtype_pairs(run, call))


def reference_array(leaf: Leaf) -> AnyArray:
    """An argument's values as the reference takes them."""
    return leaf.array.astype(widened_dtype(leaf.array.dtype), copy=False)


def same_bytes(first: AnyArray, second: AnyArray) -> bool:
    """Have two arrays the same dtype, shape and bits?"""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    return (
        first.tobytes() == second.tobytes() if first.size < 4096 else bool(np.array_equal(_bits(first), _bits(second)))
    )


def _bits(array: AnyArray) -> AnyArray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def widened_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if is_complex(dtype):
        return np.dtype(np.complex128)
    return np.dtype(np.float64) if is_floating(dtype) else dtype


def same_results(first: Run, second: Run) -> bool:
    """Do two reference runs agree to float64's precision?"""
    return _agree(first, second, lambda one, two: np.allclose(one, two, rtol=1e-9, atol=1e-12, equal_nan=True))


def alike(first: Run, second: Run) -> bool:
    """Are two runs the same, or so near that no 16-bit rounding stands between them?"""
    return first.outputs.keys() == second.outputs.keys() and _agree(first, second, _near)


def _agree(first: Run, second: Run, near: Callable[[AnyArray, AnyArray], bool]) -> bool:
    """Are the outputs of the first run near those of the second, and equal where they are no arrays?"""
    for name, value in first.outputs.items():
        other = second.outputs.get(name)
        if not isinstance(value, np.ndarray) or not isinstance(other, np.ndarray):
            if type(value) is not type(other) or value != other:
                return False
        elif not near(value, other):
            return False
    return True


def _near(value: AnyArray, other: AnyArray) -> bool:
    if value.shape != other.shape or value.dtype != other.dtype:
        return False
    if same_bytes(value, other):
        return True
    one, two = widen(value), widen(other)
    size = float(np.max(np.abs(one), initial=0.0, where=np.isfinite(one)))
    return bool(np.allclose(one, two, rtol=0.0, atol=NEAR * size, equal_nan=True))


def apart(first: Mapping[str, Any], second: Mapping[str, Any]) -> float:
    """The sum of what two sides' numbers differ by beyond half an ulp of the first's dtype, so that its own rounding
    does not decide; inf where NaN or shapes differ."""
    total = 0.0
    for name in first.keys() & second.keys():
        if not all(isinstance(side[name], (np.ndarray, float)) for side in (first, second)):
            continue
        one, other = widen(first[name]), widen(second[name])
        if one.shape != other.shape:
            return np.inf
        with np.errstate(invalid="ignore", over="ignore"):
            same = (one == other) | (np.isnan(one) & np.isnan(other))
            distance = np.where(same, 0.0, np.abs(one - other) - _half_ulp(first[name], other)).clip(min=0.0)
        total += float(np.sum(np.where(np.isnan(distance), np.inf, distance)))
    return total


def _half_ulp(value: Any, reference: AnyArray) -> AnyArray | float:
    dtype = np.asarray(value).dtype
    return ulp(reference, dtype) / 2 if is_floating(dtype) or is_complex(dtype) else 0.0


def described(run: Run) -> str:
    """The outputs of a run in words: "float32[2, 3], int64[2]"."""
    words = [
        f"{value.dtype.name}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
        for value in itertools.islice(run.outputs.values(), 6)
    ]
    return ", ".join(words) + (", ..." if len(run.outputs) > 6 else "") or "nothing"


def recorded(call: Call) -> str:
    """The recorded outputs in words."""
    words = [
        f"{value.dtype}{list(value.shape)}" if isinstance(value, TensorSpec) else type(value).__name__
        for _, value in recorded_leaves(call)[:6]
    ]
    return ", ".join(words) or "nothing"


def first_line(error: BaseException) -> str:
    """What a framework's error says, in one line of at most 300 characters."""
    return (str(error).strip().split("\n", 1)[0] or type(error).__name__)[:300]
