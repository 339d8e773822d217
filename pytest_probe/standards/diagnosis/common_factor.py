"""The one number that an output may be the reference times."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from pytest_probe.numerics.dtypes import Float64Array, float_format
from pytest_probe.numerics.statistics import has_distinct
from pytest_probe.numerics.ulp import ulp

# Of what a common factor changes: what may be left beside it. Numbers that show one, among so many; elements that must.
BESIDE, NUMBERS, LOOKED_AT, NEARLY_ALL = 1 / 32, 16, 1024, 0.95


def factors(actual: Float64Array, expected: Float64Array, dtype: npt.DTypeLike) -> Iterator[float]:
    """The number whose multiples round to the output in its dtype, the one by least squares, and the middle one of the
    elements' factors."""
    small = 2.0 ** float_format(dtype).min_exponent
    usable = np.isfinite(actual) & np.isfinite(expected) & (np.abs(expected) > small)
    if not usable.all():
        actual, expected = actual[usable], expected[usable]
    actual, expected = actual.reshape(-1), expected.reshape(-1)
    if not actual.size:
        return
    half = ulp(actual, dtype) / 2
    sizes, wanted = np.abs(actual), np.abs(expected)
    least, most = float(((sizes - half) / wanted).max()), float(((sizes + half) / wanted).min())
    if least <= most:
        yield (least + most) / 2
    unit = wanted.max()
    yield float(np.dot(actual / unit, expected / unit) / np.dot(expected / unit, expected / unit))
    yield float(np.median(actual / expected))


def is_uniform(actual: Float64Array, expected: Float64Array, factor: float) -> bool:
    """Is the output the reference times that number, and nothing else?"""
    if not has_distinct(expected.ravel()[:LOOKED_AT], NUMBERS):
        return False
    with np.errstate(invalid="ignore", over="ignore"):
        beside = np.abs(actual - factor * expected) <= BESIDE * np.abs((factor - 1) * expected)
    return bool(np.count_nonzero(beside) >= NEARLY_ALL * beside.size)
