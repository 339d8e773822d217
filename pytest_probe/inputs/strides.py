"""How a recorded tensor lay in memory: expanded dimensions, and strides by which values can be laid out anew."""

from __future__ import annotations

from msgspec.structs import replace

from pytest_probe.model.dump import TensorSpec
from pytest_probe.numerics.dtypes import numpy_dtype

# Bytes: no kernel needs a tensor's first element aligned to more, and torch's allocations are.
ALIGNED = 64


def is_layout(spec: TensorSpec) -> bool:
    """Has the tensor strides by which no two elements share a place, except along expanded dimensions?"""
    if spec.stride is None or not spec.size:
        return False
    reach = 0
    for stride, extent in sorted(zip(spec.stride, spec.shape, strict=True)):
        if extent > 1 and stride:
            if stride <= reach:
                return False
            reach += stride * (extent - 1)
    return True


def offset(spec: TensorSpec) -> int:
    """Elements that lay between an aligned address and the tensor's first one, as a view of other memory has them: some
    kernels are for aligned tensors only."""
    if not spec.address or not spec.size or spec.ndarray:
        return 0
    count, rest = divmod(spec.address % ALIGNED, numpy_dtype(spec.dtype).itemsize)
    return 0 if rest else count


def without_repeats(spec: TensorSpec) -> TensorSpec:
    """The tensor that was expanded to this one: each of its elements is in memory once. The same tensor if it is not
    expanded."""
    expanded = [not stride and extent > 1 for stride, extent in zip(spec.stride or (), spec.shape, strict=False)]
    if not any(expanded) or not spec.size:
        return spec
    shape = tuple(1 if repeats else extent for repeats, extent in zip(expanded, spec.shape, strict=True))
    copies = spec.size // replace(spec, shape=shape).size
    nan, inf, negative, true = (
        None if count is None else count // copies for count in (spec.nan, spec.inf, spec.negative_inf, spec.true)
    )
    # Statistics were of all elements, with each repetition.
    norm = None if spec.norm is None else spec.norm / copies**0.5
    # An expanded last dimension makes every row constant; the row of the original is not.
    rows = None if expanded[-1] else spec.constant_rows
    own = replace(spec, shape=shape, stride=None, norm=norm, nan=nan, inf=inf, negative_inf=negative, true=true)
    return replace(own, constant_rows=rows)


LAYOUTS = ("contiguous", "transposed", "channels_last", "sliced", "expanded")


def layout_strides(layout: str, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The strides of a layout: the last two dimensions swapped in memory, the second one last, a slice of a tensor with
    longer rows (of one dimension: every second element), the first dimension expanded. None: in order. Raises
    ValueError, which says how many dimensions it needs, where the shape has fewer."""
    rank, least = len(shape), {"transposed": 2, "channels_last": 3, "contiguous": 0}.get(layout, 1)
    if rank < least:
        raise ValueError(f"a shape of {least} dimensions or more")
    if layout == "transposed":
        return _strides_in_order(shape, (*range(rank - 2), rank - 1, rank - 2))
    if layout == "channels_last":
        return _strides_in_order(shape, (0, *range(2, rank), 1))
    if layout == "sliced":
        return (2,) if rank == 1 else contiguous_strides((*shape[:-1], shape[-1] + 1))
    if layout == "expanded":
        return (0, *contiguous_strides(shape)[1:])
    return None


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a tensor whose elements lie in memory in their order."""
    return _strides_in_order(shape, tuple(range(len(shape))))


def _strides_in_order(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """Strides by which dimensions lie in memory in this order, the last one innermost."""
    strides, step = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)
