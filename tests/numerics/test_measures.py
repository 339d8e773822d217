from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_probe.numerics.convention import FAMILIES, convention
from pytest_probe.numerics.dtypes import round_to
from pytest_probe.numerics.measures import Measures, measure
from tests.numerics.naive_measures import naive

FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64", "complex128")
DISCRETE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
INF, NAN = math.inf, math.nan


def same(found: Measures, wanted: Measures, relative: float = 1e-9) -> None:
    for field in dataclasses.fields(Measures):
        mine, theirs = getattr(found, field.name), getattr(wanted, field.name)
        floor = 1e-13 if field.name == "cosine_distance" else 0.0
        assert (mine is None) == (theirs is None), (field.name, mine, theirs)
        if mine is not None:
            assert mine == pytest.approx(theirs, rel=relative, abs=floor, nan_ok=True), (field.name, mine, theirs)
            assert type(mine) in (int, float), field.name


def noisy(name: str, size: int, seed: int, special: bool) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """An output and its reference with everything in it: zeros, small and large values, NaN and inf on either side."""
    random = np.random.default_rng(seed)
    complexes = name.startswith("complex")
    expected = random.standard_normal(size) * 10.0 ** random.integers(-9, 5, size)
    if complexes:
        expected = expected + 1j * random.permutation(expected)
    expected[random.random(size) < 0.1] = 0
    actual = expected * (1 + random.standard_normal(size) * 10.0 ** random.integers(-8, 0, size))
    actual += (random.random(size) < 0.05) * 1e-4
    if special:
        values = np.array([NAN, INF, -INF, 1e39, -1e5])
        for side in (actual, expected):
            chosen = random.random(size) < 0.05
            side[chosen] = values[random.integers(0, len(values), int(chosen.sum()))]
        both = random.random(size) < 0.05
        actual[both] = expected[both]
        if complexes:
            expected.imag[random.random(size) < 0.02] = NAN
    with np.errstate(all="ignore"):
        return round_to(actual, name), expected


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", FLOATS)
@settings(max_examples=15, deadline=None)
@given(size=st.integers(1, 300), seed=st.integers(0, 2**32), special=st.booleans(), block=st.integers(1, 400))
def test_equals_the_plain_formulas(family: str, name: str, size: int, seed: int, special: bool, block: int) -> None:
    rule = convention(family, name)
    actual, expected = noisy(name, size, seed, special)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pytest_probe.numerics.totals.BLOCK", block)
        patch.setattr("pytest_probe.numerics.measures.BLOCK", block)
        found = measure(actual, expected, rule)
    same(found, naive(actual, expected, rule))
