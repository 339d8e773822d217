"""What drawn scaled and grouped products hold besides their regimes: scales that a kernel can be asked for, blocks that
it may get wrong, of zeros and with one huge number, and groups of nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from pytest_probe.errors import BrokenCall
from pytest_probe.model.run import BoundCall
from pytest_probe.model.scaled_product import operands
from pytest_probe.numerics.dtypes import PACKED, AnyArray, dtype_name, float_format, is_packed
from pytest_probe.numerics.scaled import places

_E8M0 = "float8_e8m0fnu"
# Bytes 0 and 255, the smallest power and NaN. 254, the largest, overflows in float32 or does not by the order in which
# a healthy kernel multiplies: only blocks of zeros have it.
_LARGEST = 254
_EDGES = (2.0**-127, np.nan)
# How often a drawn operand has such blocks, or a scale of such a byte, and how many numbers the smallest blocks have.
_OFTEN, _BLOCK = 0.25, 16
# Numbers of the widest blocks but those of 128: one of each so many is huge, where each block has a huge one.
_WIDEST = 32
# The byte of two numbers of float4, its largest and zero.
_SIX = 7
_KINDS = {"scale_a": "scales", "scale_b": "scales", "input": "numbers", "mat2": "numbers", "offs": "ends"}


def places_of(bound: BoundCall) -> dict[str, str]:
    """What the arguments of a scaled or grouped product are, "scales", "numbers" or "ends" of groups, by their places;
    nothing for another call."""
    if "mat2" not in bound.paths or not bound.paths.keys() & {"scale_a", "offs"}:
        return {}
    return {bound.paths[name]: kind for name, kind in _KINDS.items() if name in bound.paths}


def changed(kind: str, values: Any, dtype: str, rng: np.random.Generator) -> Any:
    """The values that a regime gave, as a scaled product may have them: no scale has a sign, and none is infinite,
    since zero times it is NaN or not by the order of multiplications."""
    if not values.size:
        return values
    if kind == "ends":
        found = np.array(values)
        if found.size > 1 and rng.random() < _OFTEN:
            place = int(rng.integers(found.size - 1))
            found[place] = found[place - 1] if place else 0
        return found
    if kind == "numbers":
        return _numbers(values, dtype, rng)
    scales = np.abs(np.asarray(values, np.float64))
    scales[np.isinf(scales)] = 1.0
    if dtype == _E8M0 and rng.random() < _OFTEN:
        scales.flat[rng.integers(scales.size)] = rng.choice(_EDGES)
    return scales


def _numbers(values: AnyArray, dtype: str, rng: np.random.Generator) -> AnyArray:
    if values.dtype.kind in "iu":
        return values  # bytes of pairs
    found = np.array(values, np.float64)
    start = int(rng.integers(found.size))
    if rng.random() < _OFTEN:
        found.reshape(-1)[start : start + _BLOCK] = 0.0
    if rng.random() < _OFTEN:
        first, step = (start % _WIDEST, _WIDEST) if rng.random() < 0.5 else (start, found.size)
        found.reshape(-1)[first::step] = _SIX if dtype == PACKED else float_format(dtype).max
    return found


def give_largest_scale(bound: BoundCall, rng: np.random.Generator) -> None:
    """Write the largest scale of E8M0, byte 254, to one block of the first operand, often, and zeros to its numbers."""
    if rng.random() >= _OFTEN:
        return
    try:
        operand, _ = operands(bound)
    except BrokenCall:
        return  # groups, or no scales of a recipe
    if dtype_name(operand.scales[0].dtype) != _E8M0 or not operand.matrix.size:
        return
    recipe = operand.scaling.recipes[0]
    where = places(recipe, operand.shape, operand.scaling.order)
    row, block = int(rng.integers(where.shape[0])), int(rng.integers(where.shape[1]))
    operand.scales[0].view(np.uint8).reshape(-1)[where[row, block]] = _LARGEST
    width = recipe.columns // (2 if is_packed(operand.matrix) else 1)
    operand.matrix.view(np.uint8)[row, block * width : (block + 1) * width] = 0
