"""Interpolation to the nearest element: either of two where float32 rounding decides which is nearest.

Place i of a dimension takes input element floor((i + shift) * step), clipped to the input; step is input size over
output size, or 1 / scale_factor, and shift is 0.5 for `nearest-exact`, else 0: as torch's documentation of interpolate
says. Both elements are right where float64 and float32, in three orders of the product, give different ones. Arrays
have the shape (N, C, then one or several dimensions).
"""

from __future__ import annotations

import itertools

import numpy as np
from msgspec.structs import replace

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray, widen
from pytest_probe.standards.exact import Exact, identical
from pytest_probe.standards.noise.standard import NoiseStandard


class Neighbours:
    """Bit for bit the reference, or either of two elements where kernels that compute places in float32 may find
    either. By noise if the reference has other numbers than the input."""

    name = "exact"

    def judge(self, comparison: Comparison) -> OutputVerdict:
        exact = Exact().judge(comparison)
        values = comparison.call.argument("input")
        if exact.verdict == "pass" or not isinstance(values, np.ndarray) or values.ndim != comparison.actual.ndim:
            return exact
        if not (np.isin(comparison.expected, widen(values)) | np.isnan(comparison.expected)).all():
            # Another mode, which a user's function sets by itself: no argument says so.
            return NoiseStandard().judge(comparison)
        sides = [_sides(comparison, values, dim) for dim in range(2, values.ndim)]
        unsure = np.zeros(comparison.actual.shape, dtype=bool)
        for dim, (low, high) in enumerate(sides, 2):
            unsure |= (low != high).reshape(-1, *[1] * (values.ndim - 1 - dim))
        expected = comparison.expected
        for places in itertools.product(*sides):
            other = values[np.ix_(*map(np.arange, values.shape[:2]), *places)]
            expected = np.where(unsure & identical(comparison.actual, other), widen(other), expected)
        return Exact().judge(replace(comparison, expected=expected))


def _sides(comparison: Comparison, values: AnyArray, dim: int) -> tuple[AnyArray, AnyArray]:
    """The elements that each place of a dimension may be, lower and upper."""
    extent, count = values.shape[dim], comparison.actual.shape[dim]
    given = None if comparison.call.argument("recompute_scale_factor") else comparison.call.argument("scale_factor")
    scale = given[dim - 2] if isinstance(given, (list, tuple)) else given
    shift = 0.5 if comparison.call.argument("mode") == "nearest-exact" else 0.0
    over, under = (1.0, scale) if scale else (extent, count)
    targets = np.arange(count) + shift
    narrow = targets.astype(np.float32)
    step = np.float32(over) / np.float32(under)
    # In float64, and in the three orders in which float32 kernels multiply and divide.
    places = [targets * (over / under), narrow * np.float32(over / under), narrow * step, narrow * over / under]
    found = np.floor(places).astype(int).clip(0, extent - 1)
    return found.min(axis=0), found.max(axis=0)
