"""Tensors that one side holds in parts: of micro-batches, of ranks, of fused modules. Which dimension is divided is
found from the shapes, unless a map says it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from pytest_probe.features.against.sides import TENSORS, AnyTensor, Composed, Side, Values, compared
from pytest_probe.numerics.dtypes import AnyArray, widen

if TYPE_CHECKING:
    from pytest_probe.features.against.dump_map import Layout


def joined(parts: Sequence[Side], whole: Side, layout: Layout | None = None) -> Side:
    """Several records of one side as one record of the other side is: tensors one after the other where their shapes
    add up to the other side's; summed where they are gradients of that shape, or `partial`; else those of the first,
    where all are equal."""

    def of(values: Sequence[Values], other: Values) -> Values:
        return {name: _joined([each.get(name) for each in values], other.get(name), name, layout) for name in values[0]}

    inputs, outputs = (
        of([part.inputs for part in parts], whole.inputs),
        of([part.outputs for part in parts], whole.outputs),
    )
    return replace(parts[0], inputs=inputs, outputs=outputs)


def _joined(parts: Sequence[Any], whole: Any, name: str, layout: Layout | None) -> Any:
    if not isinstance(whole, TENSORS) or not all(isinstance(part, TENSORS) for part in parts):
        return parts[0]
    shapes, has_values = [part.shape for part in parts], all(part.has_values for part in parts)
    if all(shape == whole.shape for shape in shapes):
        summed = name.startswith("grad.") or (layout is not None and layout.partial)
        if summed:
            return Composed(parts[0].dtype, whole.shape, has_values, lambda: _sum(parts))
        # A mean of each part, for one, says nothing of the mean of all.
        return parts[0] if all(compared(part, parts[0]).agrees for part in parts[1:]) else None
    dims = [] if len({len(shape) for shape in (*shapes, whole.shape)}) > 1 else range(len(whole.shape))
    fitting = []
    for dim in dims:
        others = {(*shape[:dim], *shape[dim + 1 :]) for shape in (*shapes, whole.shape)}
        if len(others) == 1 and sum(shape[dim] for shape in shapes) == whole.shape[dim]:
            fitting.append(dim)
    if not fitting:
        return parts[0]
    axis = layout.dim if layout is not None and layout.dim in fitting else fitting[0]
    return Composed(
        parts[0].dtype, whole.shape, has_values, lambda: np.concatenate([part.array() for part in parts], axis=axis)
    )


def _sum(parts: Sequence[AnyTensor]) -> AnyArray:
    arrays = [part.array() for part in parts]
    return np.asarray(sum(widen(array) for array in arrays)).astype(arrays[0].dtype)


def cut(whole: Side, part: Side, index: int, count: int) -> Side:
    """The side that holds all, as the index-th of `count` ranks of the other side holds it."""

    def of(values: Values, own: Values) -> Values:
        return {name: _cut(value, own.get(name), index, count) for name, value in values.items()}

    return replace(whole, inputs=of(whole.inputs, part.inputs), outputs=of(whole.outputs, part.outputs))


def _cut(whole: Any, part: Any, index: int, count: int) -> Any:
    if not isinstance(whole, TENSORS) or not isinstance(part, TENSORS) or len(whole.shape) != len(part.shape):
        return whole
    divided = [dim for dim, (all, own) in enumerate(zip(whole.shape, part.shape, strict=True)) if all != own]
    if len(divided) != 1 or whole.shape[divided[0]] != count * part.shape[divided[0]]:
        return whole
    return Composed(
        whole.dtype, part.shape, whole.has_values, lambda: np.split(whole.array(), count, axis=divided[0])[index]
    )
