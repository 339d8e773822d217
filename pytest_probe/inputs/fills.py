"""Values that are unlike the recorded ones. Exact inputs, whose products and sums are exact in any order, so that every
bit of a product must be right: numbers are small integers, of which those of a sum fit into float32 many times over;
scales are powers of two, of which no two that are stored side by side are equal, so that a scale of another block
shows at once. And what a test names: fills, tensors of another size with the same statistics, what a dump says of an
array."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from pytest_probe.inputs.draws import round_to_dtype
from pytest_probe.inputs.generated import generate, integer_range, kind_of
from pytest_probe.model.dump import TensorSpec
from pytest_probe.numerics.dtypes import PACKED, AnyArray, dtype_name, is_packed, numpy_dtype, packed, unpacked, widen

# All of them are numbers of float4.
_NUMBERS = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
# None is 1, lest a scale that is ignored stays unseen. The products of two lie within 4 bits around 1, so that sums of
# 2^17 terms are exact in float32.
_SCALES = np.array([0.25, 0.5, 2.0, 4.0])
# One scale alone, of either operand: no two of them make 1.
_ALONE = np.array([2.0, 4.0])


def is_exact(spec: TensorSpec) -> bool:
    """Are there such values for the tensor? int8 is one of a product's operands; other integers are indices."""
    return kind_of(spec.dtype) in ("float", "packed") or spec.dtype == "int8"


def exact_values(spec: TensorSpec, dtype: str, rng: np.random.Generator, *, scales: bool) -> AnyArray:
    """Values of the spec's shape in a dtype: scales, or numbers that are multiplied and added."""
    if scales and spec.size == 1:
        return np.full(spec.shape, rng.choice(_ALONE)).astype(numpy_dtype(dtype))
    if scales:
        groups = -(-spec.size // _SCALES.size)
        drawn = rng.permuted(np.tile(_SCALES, (groups, 1)), axis=1)
        # The last of one group is no first of the next.
        same = np.flatnonzero(drawn[1:, 0] == drawn[:-1, -1]) + 1
        drawn[same] = np.roll(drawn[same], 1, axis=1)
        return round_to_dtype(drawn.reshape(-1)[: spec.size], dtype).reshape(spec.shape)
    if dtype == PACKED:
        return packed(rng.choice(_NUMBERS, 2 * spec.size)).reshape(spec.shape)
    return round_to_dtype(rng.choice(_NUMBERS, spec.size), dtype).reshape(spec.shape)


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
