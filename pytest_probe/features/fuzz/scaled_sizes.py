"""Drawn scaled products of other sizes than the record's: as many scales as the recipe asks for the operands drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from pytest_probe.errors import BrokenCall
from pytest_probe.features.fuzz.drawn import DrawnCall, DrawnTensor
from pytest_probe.model.run import map_tree
from pytest_probe.model.scaled_product import Scaling, listed, scaling_of
from pytest_probe.numerics.dtypes import PACKED, numpy_dtype
from pytest_probe.numerics.scaled import TILE_COLUMNS, TILE_ROWS, Order

# Kernels of 8 and 4 bits take rows of so many bytes: ATen/native/cuda/ScaledBlas.cpp asks it of K and of N.
_BYTES = 16
_Shape = tuple[int, ...]


def fitted(drawn: DrawnCall) -> DrawnCall:
    """The call with K and N that kernels take, and scales and a bias of shapes that go with them; any other call, one
    of groups included, as it is."""
    bound = drawn.signatures.bind(drawn.api, drawn.args, drawn.kwargs)
    if not {"scale_a", "scale_b", "mat2"} <= bound.paths.keys() or "offs" in bound.paths:
        return drawn
    a, b = bound.given["input"], bound.given["mat2"]
    if not all(isinstance(each, DrawnTensor) and len(each.shape) == 2 for each in (a, b)):
        return drawn
    inner, columns = (-(-each.shape[1] // _BYTES) * _BYTES for each in (a, b))
    shapes: dict[str, _Shape] = {bound.paths["input"]: (a.shape[0], inner), bound.paths["mat2"]: (inner, columns)}
    if isinstance(bound.given.get("bias"), DrawnTensor):
        shapes[bound.paths["bias"]] = (columns,)
    try:
        for side, matrix, rows in (("a", a, a.shape[0]), ("b", b, columns)):
            # Rows of numbers that a product adds up, as the record had them.
            assert matrix.recorded is not None
            first, second = matrix.recorded.shape if side == "a" else matrix.recorded.shape[::-1]
            before, after = (first, _numbers(matrix, second)), (rows, _numbers(matrix, inner))
            scaling, given = _recorded_scaling(drawn, side, before), bound.given[f"scale_{side}"]
            path = bound.paths[f"scale_{side}"]
            paths = [f"{path}.{place}" for place in range(len(given))] if isinstance(given, (list, tuple)) else [path]
            for place, (each, value, recipe) in enumerate(zip(paths, listed(given), scaling.recipes, strict=True)):
                order: Order = "grid" if place else scaling.order
                stored = _shapes(order, *recipe.blocks(before)), _shapes(order, *recipe.blocks(after))
                pairs = zip(*stored, strict=True)
                found = next((new for old, new in pairs if old == value.recorded.shape), None)
                if found is None:  # scales of no recipe
                    return drawn
                shapes[each] = found
    except BrokenCall:
        return drawn

    def reshaped(value: Any, path: str) -> Any:
        return replace(value, shape=shapes[path]) if path in shapes and isinstance(value, DrawnTensor) else value

    args, kwargs = map_tree(drawn.args, "input", reshaped), map_tree(dict(drawn.kwargs), "kwargs", reshaped)
    return replace(drawn, args=args, kwargs=kwargs)


def _numbers(matrix: DrawnTensor, extent: int) -> int:
    return extent * 2 if matrix.dtype == PACKED else extent


def _recorded_scaling(drawn: DrawnCall, side: str, shape: tuple[int, int]) -> Scaling:
    """How the record scales an operand, which recipes, dtypes and shapes say."""

    def array(value: Any, _: str) -> Any:
        if not isinstance(value, DrawnTensor) or value.recorded is None:
            return value
        return np.broadcast_to(np.zeros((), numpy_dtype(value.dtype)), value.recorded.shape)

    args, kwargs = map_tree(drawn.args, "input", array), map_tree(dict(drawn.kwargs), "kwargs", array)
    return scaling_of(drawn.signatures.bind(drawn.api, args, kwargs), side, shape)


def _shapes(order: Order, rows: int, columns: int) -> Sequence[_Shape]:
    """The shapes that so many blocks may be stored in."""
    wide = -(-columns // TILE_COLUMNS) * TILE_COLUMNS
    if order == "swizzled":
        high = -(-rows // TILE_ROWS) * TILE_ROWS
        return (high * wide,), (high, wide)
    if order == "columns first":
        return (columns, rows), (wide, rows), (columns * rows,)
    return (rows, columns), (rows * columns,), (1, rows * columns), ()
