"""Statistics of blocks: of the operands of scaled products, whose scales are arguments of the same call, and of what
functions of the program's gave, where that is values with their scales.

They are counted where the tensors are, and nothing waits for a device here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from msgspec import Struct

from pytest_probe.capture.frames import Args, Kwargs
from pytest_probe.errors import BrokenCall
from pytest_probe.frameworks.torch.arrays import FLOAT4
from pytest_probe.frameworks.torch.scaled_products import SCALED_GROUPED
from pytest_probe.frameworks.torch.signatures import bind
from pytest_probe.model.run import BoundCall
from pytest_probe.model.scaled_product import (
    NARROW,
    Scaling,
    checked_matrix,
    listed,
    operands,
    scaling_of,
    scaling_of_values,
)
from pytest_probe.numerics.dtypes import numpy_dtype
from pytest_probe.numerics.scaled import TILE_COLUMNS, TILE_ROWS, Recipe, counted, laid_out, stored_count
from pytest_probe.references.scaled import float4_codes

# Each number has a scale of its own.
_EACH = Recipe("", 1, 1)


class Blocks(Struct, frozen=True):
    """What was counted of a tensor's blocks, as `numerics.block_statistics` takes it: shape (7,), where the tensor is,
    NumPy's on the CPU."""

    numbers: torch.Tensor | np.ndarray
    count: int


def of_operands(api: str, args: Args, kwargs: Kwargs) -> dict[str, Blocks]:
    """By the operands' places in a call ("input.0"). Without an operand that has no numbers, whose scales are none of
    its recipe's, or whose blocks only the values of offs tell: groups of numbers that a product adds up."""
    found: dict[str, Blocks] = {}
    call = bind(api, tuple(args), dict(kwargs))
    # What is wrong with the operands the call itself says.
    with suppress(BrokenCall):
        scalings, both = _scalings(call), (call.argument("input"), call.argument("mat2"))
        for name, side, axis, scaling in zip(("input", "mat2"), "ab", (-1, -2), scalings, strict=True):
            matrix, scales = call.argument(name), listed(call.argument(f"scale_{side}"))[0]
            offs = call.argument("offs") if matrix.dim() == 2 else None
            if matrix.numel() and (offs is None or both[0].dim() != both[1].dim()):
                found[call.paths[name]] = _counted(matrix, axis, scales, scaling, offs)
    return found


def of_results(results: Sequence[Any]) -> dict[str, Blocks]:
    """Of values that have their scales next to them, by their places ("output.0")."""
    tensors = [(place, value) for place, value in enumerate(results) if isinstance(value, torch.Tensor)][:2]
    found: dict[str, Blocks] = {}
    for (place, values), (_, scales) in zip(tensors, reversed(tensors), strict=True):
        if _name(values) in NARROW and values.dim() > 1 and values.numel():
            matrix = values.detach().view(torch.uint8).flatten(0, -2).view(values.dtype)
            shape = matrix.shape[0], matrix.shape[1] * (2 if matrix.dtype is FLOAT4 else 1)
            scaling = scaling_of_values(shape, tuple(scales.shape), _name(scales))
            if scaling is not None:
                found[f"output.{place}"] = _counted(matrix, -1, scales, scaling)
    return found


def _scalings(call: BoundCall) -> list[Scaling]:
    """Those of both operands, which dtypes and shapes tell. Raises BrokenCall where they are none of the recipe's."""
    known = call.mapped(_without_values)
    if call.api.rpartition(".")[2] in SCALED_GROUPED:
        for side in "ab":
            checked_matrix(known, side)
        return [scaling_of(known, side, None) for side in "ab"]
    return [operand.scaling for operand in operands(known)]


def _without_values(value: Any) -> Any:
    """An array of the dtype and shape of a tensor, which takes no memory."""
    if not isinstance(value, torch.Tensor):
        return value
    return np.broadcast_to(np.zeros((), numpy_dtype(_name(value))), tuple(value.shape))


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _counted(
    matrix: torch.Tensor, axis: int, scales: torch.Tensor, scaling: Scaling, offs: torch.Tensor | None = None
) -> Blocks:
    """Of a matrix, of several one after the other, or of rows in groups that end at offs. Raises BrokenCall where there
    are other scales than that takes."""
    # The bits of each number, uint8, with the numbers that a product adds up last.
    data = float4_codes(matrix, axis) if matrix.dtype is FLOAT4 else matrix.detach().view(torch.uint8)
    each, recipe = data.movedim(axis, -1), scaling.recipes[0]
    shape, codes = (each.shape[-2], each.shape[-1]), each.flatten(0, -2)
    blocks = recipe.blocks((codes.shape[0], codes.shape[1]))
    wide = scales.detach().to(torch.float32 if scales.device.type == "mps" else torch.float64)
    if offs is not None and scaling.order == "swizzled":
        _check_count(scales, scaling, (TILE_ROWS, shape[1]))
        grid = _of_groups(wide, blocks[1], offs)
    else:
        _check_count(scales, scaling, shape)
        grid = laid_out(wide, recipe, shape, scaling.order).flatten(0, -2)
        if grid.shape != blocks:
            raise BrokenCall(f"{recipe.name}: scales of shape {list(scales.shape)} for numbers of {list(each.shape)}")
    name = "float4_e2m1fn" if matrix.dtype is FLOAT4 else _name(matrix)
    if codes.is_cpu:  # torch takes six times as long there
        return Blocks(counted(codes.numpy(), name, grid.numpy(), recipe), math.prod(blocks))
    return Blocks(counted(codes, name, grid, recipe, torch), math.prod(blocks))


def _check_count(scales: torch.Tensor, scaling: Scaling, shape: tuple[int, int]) -> None:
    """Are there the scales of any number of matrices of this shape? Raises BrokenCall."""
    stored = stored_count(scaling.recipes[0], shape, scaling.order)
    if scaling.order != "columns first" and scales.numel() % stored:
        raise BrokenCall(f"scales of shape {list(scales.shape)}, expected a multiple of {stored:,}")


def _of_groups(scales: torch.Tensor, columns: int, offs: torch.Tensor) -> torch.Tensor:
    """The scales of rows in groups, each of which begins with a tile of its own, and 0 where there is no row: how many
    rows a group has is not waited for."""
    rows = scales.numel() // (-(-columns // TILE_COLUMNS) * TILE_COLUMNS)
    sizes = offs.diff(prepend=offs.new_zeros(1))
    tiled = (sizes + TILE_ROWS - 1) // TILE_ROWS * TILE_ROWS
    ends, row = tiled.cumsum(0), torch.arange(rows, device=offs.device)
    group = torch.searchsorted(ends, row, right=True)
    own = group.clamp(max=len(offs) - 1)
    there = (group == own) & (row - (ends - tiled)[own] < sizes[own])
    grid: torch.Tensor = laid_out(scales, _EACH, (rows, columns), "swizzled")
    return grid.masked_fill(~there[:, None], 0.0)
