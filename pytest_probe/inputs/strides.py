"""How a recorded tensor lay in memory: expanded dimensions, and strides by which values can be laid out anew."""

from __future__ import annotations

from dataclasses import replace

from pytest_probe.core.dump import TensorSpec


def is_layout(spec: TensorSpec) -> bool:
    """Has the tensor strides by which no two elements share a place, but for those of expanded dimensions?"""
    if spec.stride is None or not spec.size:
        return False
    reach = 0
    for stride, extent in sorted(zip(spec.stride, spec.shape, strict=True)):
        if extent > 1 and stride:
            if stride <= reach:
                return False
            reach += stride * (extent - 1)
    return True


def without_repeats(spec: TensorSpec) -> TensorSpec:
    """The tensor that was expanded to this one: its elements stand in memory once. Itself where nothing was."""
    expanded = [not stride and extent > 1 for stride, extent in zip(spec.stride or (), spec.shape, strict=False)]
    if not any(expanded) or not spec.size:
        return spec
    shape = tuple(1 if repeats else extent for repeats, extent in zip(expanded, spec.shape, strict=True))
    copies = spec.size // replace(spec, shape=shape).size
    nan, inf, negative, true = (
        None if count is None else count // copies for count in (spec.nan, spec.inf, spec.negative_inf, spec.true)
    )
    # Statistics were of all elements, each standing there as many times.
    norm = None if spec.norm is None else spec.norm / copies**0.5
    # Where a row is one element that stands many times, every row is constant; its own is not.
    rows = None if expanded[-1] else spec.constant_rows
    own = replace(spec, shape=shape, stride=None, norm=norm, nan=nan, inf=inf, negative_inf=negative, true=true)
    return replace(own, constant_rows=rows)
