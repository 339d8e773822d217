"""Inputs whose products and sums are all exact, in any order, so that every bit of a product must be right.

Numbers are small integers, of which those of a sum fit into float32 many times over; scales are powers of two, of
which no two that are stored side by side are equal. So a scale of another block shows at once.
"""

from __future__ import annotations

import numpy as np

from pytest_probe.inputs.draws import round_to_dtype
from pytest_probe.inputs.generated import kind_of
from pytest_probe.model.dump import TensorSpec
from pytest_probe.numerics.dtypes import PACKED, AnyArray, numpy_dtype
from pytest_probe.numerics.packed import packed

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
