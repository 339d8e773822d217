"""Values that a test names: fills, tensors of another size with the same statistics, what a dump says of an array."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from pytest_probe.inputs.generated import generate, integer_range, kind_of
from pytest_probe.model.dump import TensorSpec
from pytest_probe.numerics.dtypes import AnyArray, dtype_name, numpy_dtype, widen
from pytest_probe.numerics.packed import is_packed, unpacked

FILLS = ("zeros", "ones", "ties", "ramp")
# Distinct values among ties: few enough that the largest occurs several times in a row.
_TIES = 4
# Two float4 of 1.
_ONES = 0x22


def fill_values(fill: str, spec: TensorSpec, rng: np.random.Generator) -> AnyArray:
    """Values of the spec's shape: zeros or ones; ties, a few numbers of its range that each occur many times; a ramp
    from its minimum to its maximum, -1 to 1 where floats have none, and for integers without a range 0, 1, 2, ..."""
    if fill in ("zeros", "ones"):
        return np.full(spec.shape, int(fill == "ones") * (_ONES if kind_of(spec.dtype) == "packed" else 1))
    if fill == "ramp":
        return _ramp(spec).reshape(spec.shape)
    few = generate(replace(spec, shape=(_TIES,)), rng)
    return np.asarray(few[rng.integers(_TIES, size=spec.shape)])


def _ramp(spec: TensorSpec) -> AnyArray:
    kind = kind_of(spec.dtype)
    if kind == "bool":
        return np.asarray(np.arange(spec.size) % 2 == 1)
    if kind == "packed":
        return np.arange(spec.size) % 256.0
    if kind == "integer":
        if spec.max is None:
            return np.arange(spec.size) % (np.iinfo(numpy_dtype(spec.dtype)).max + 1.0)
        low, high = integer_range(spec)
        return low + np.arange(spec.size) * (high - low) // max(spec.size - 1, 1)
    ends = (-1.0, 1.0) if spec.min is None or spec.max is None else (float(spec.min), float(spec.max))
    return np.linspace(*ends, spec.size)


def resize(spec: TensorSpec, shape: tuple[int, ...]) -> TensorSpec:
    """A tensor of another shape with the same statistics, counts being the same share of its elements."""
    own = replace(spec, shape=shape, stride=None, values=None, address=None)
    if spec.size in (0, own.size):
        return own
    share = own.size / spec.size
    nan, inf, negative, true = (
        None if count is None else round(count * share) for count in (spec.nan, spec.inf, spec.negative_inf, spec.true)
    )
    norm = None if spec.norm is None else spec.norm * share**0.5
    return replace(own, norm=norm, nan=nan, inf=inf, negative_inf=negative, true=true)


def describe_array(array: AnyArray) -> TensorSpec:
    """An array as a dump describes a tensor."""
    spec = TensorSpec(dtype_name(array.dtype), array.shape)
    if not array.size:
        return spec
    if is_packed(array):
        return _describe_floats(spec, widen(unpacked(array)))
    if array.dtype == np.bool_:
        return replace(spec, max=bool(array.max()), min=bool(array.min()), true=int(np.count_nonzero(array)))
    if array.dtype.kind in "iu":
        return replace(spec, max=int(array.max()), min=int(array.min()))
    return _describe_floats(spec, np.abs(widen(array)) if array.dtype.kind == "c" else widen(array))


def _describe_floats(spec: TensorSpec, values: AnyArray) -> TensorSpec:
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (None, None)
    zeros = float(np.mean(values == 0))
    if finite.size < values.size:
        nan, inf, negative = (
            int(np.count_nonzero(each)) for each in (np.isnan(values), np.isinf(values), values == -np.inf)
        )
        top, bottom = float(values.max()), float(values.min())
        own = replace(spec, max=top, min=bottom, high=high, low=low, zeros=zeros)
        return replace(own, nan=nan, inf=inf, negative_inf=negative)
    mean, norm = float(values.mean()), float(np.sqrt(np.square(values).sum()))
    return replace(spec, max=high, min=low, mean=mean, norm=norm, zeros=zeros)
