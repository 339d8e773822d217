from __future__ import annotations

import numpy as np
import pytest

from pytest_probe.check.large import checksums
from pytest_probe.check.large.checksums import Checksums
from pytest_probe.numerics.dtypes import numpy_dtype

SIGNS = np.array([1.0, -1.0, 1.0, 1.0, -1.0])
ARRAY = np.arange(10.0, dtype=np.float32).reshape(2, 5)


def test_blocks_are_summed_with_signs() -> None:
    assert Checksums(SIGNS, 2).signed(ARRAY, 1).tolist() == [[-1, 5, -4], [-1, 15, -9]]


def test_along_the_first_dimension() -> None:
    assert Checksums(SIGNS[:2], 2).signed(ARRAY, 0).tolist() == [[-5, -5, -5, -5, -5]]


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.random.default_rng(0).standard_normal((7, 3, 5)).astype(np.float32)
    made = [Checksums.of(array.shape[axis], 2, np.random.default_rng(1)) for axis in range(3)]
    whole = [made[axis].signed(array, axis) for axis in range(3)]
    monkeypatch.setattr(checksums, "CHUNK", 20)
    for axis in range(3):
        assert np.array_equal(made[axis].signed(array, axis), whole[axis])


def test_rounding_of_powers_of_two_is_a_uniform_error_of_one_ulp() -> None:
    array = np.array([[1.0, 2.0]], dtype=numpy_dtype("bfloat16"))
    ulps = np.array([2.0**-7, 2.0**-6])
    assert Checksums(np.ones(2), 2).rounding(array, 1) == pytest.approx(np.sqrt((ulps**2 / 12).sum()))


def test_blocks_are_no_larger_than_the_dimension() -> None:
    made = Checksums.of(10, 3, np.random.default_rng(0))
    assert (made.size, len(made.signs), set(made.signs)) == (3, 10, {-1.0, 1.0})
    assert Checksums.of(10, 99, np.random.default_rng(0)).size == 10


def test_places_of_blocks() -> None:
    made = Checksums(SIGNS, 2)
    assert made.places(np.array([2, 0, 1]), 3).tolist() == [4]
    assert made.places(np.array([2, 0, 1]), 4).tolist() == [4, 0, 1]
