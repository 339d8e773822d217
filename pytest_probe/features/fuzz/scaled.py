"""What drawn scaled and grouped products hold besides their regimes: scales that a kernel can be asked for, blocks that
it may get wrong, of zeros and with one huge number, and groups of nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from pytest_probe.model.run import BoundCall
from pytest_probe.numerics.dtypes import AnyArray, Float64Array, float_format

_E8M0 = "float8_e8m0fnu"
# Bytes 0 and 255, the smallest power and NaN. 254, the largest, overflows in float32 or does not by the order in which
# a healthy kernel multiplies.
_EDGES = (2.0**-127, np.nan)
# How often a drawn operand has such blocks, or a scale of such a byte, and how many numbers the smallest blocks have.
_OFTEN, _BLOCK = 0.25, 16


_KINDS = {"scale_a": "scales", "scale_b": "scales", "input": "numbers", "mat2": "numbers", "offs": "ends"}


def places_of(bound: BoundCall) -> dict[str, str]:
    """What the arguments of a scaled or grouped product are, "scales", "numbers" or "ends" of groups, by their places;
    nothing for another call."""
    if "mat2" not in bound.paths or not bound.paths.keys() & {"scale_a", "offs"}:
        return {}
    return {bound.paths[name]: kind for name, kind in _KINDS.items() if name in bound.paths}


def kind_at(places: dict[str, str], path: str) -> str:
    """What stands at a path, which may lie in a list of scales; "" for anything else."""
    return next((kind for place, kind in places.items() if path == place or path.startswith(f"{place}.")), "")


def changed(kind: str, values: Any, dtype: str, rng: np.random.Generator) -> Any:
    """The values that a regime gave, as a scaled product may have them: no scale has a sign, and none is infinite,
    since zero times it is NaN or not by the order of multiplications."""
    if not values.size:
        return values
    if kind == "ends":
        return _ends(values, rng)
    return _scales(values, dtype, rng) if kind == "scales" else _numbers(values, dtype, rng)


def _ends(values: AnyArray, rng: np.random.Generator) -> AnyArray:
    found = np.array(values)
    if found.size > 1 and rng.random() < _OFTEN:
        place = int(rng.integers(found.size - 1))
        found[place] = found[place - 1] if place else 0
    return found


def _scales(values: AnyArray, dtype: str, rng: np.random.Generator) -> Float64Array:
    found = np.abs(np.asarray(values, np.float64))
    found[np.isinf(found)] = 1.0
    if dtype == _E8M0 and rng.random() < _OFTEN:
        found.flat[rng.integers(found.size)] = rng.choice(_EDGES)
    return found


def _numbers(values: AnyArray, dtype: str, rng: np.random.Generator) -> AnyArray:
    if values.dtype.kind in "iu":
        return values  # bytes of pairs
    found = np.array(values, np.float64)
    start = int(rng.integers(found.size))
    if rng.random() < _OFTEN:
        found.reshape(-1)[start : start + _BLOCK] = 0.0
    if rng.random() < _OFTEN:
        found.reshape(-1)[start] = float_format(dtype).max
    return found
