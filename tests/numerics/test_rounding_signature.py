from __future__ import annotations

import numpy as np
import pytest

from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.numerics.rounding_signature import direction, partitions, unlike_rounding

SHAPE = (32, 64)
VALUES = np.random.default_rng(0).normal(size=SHAPE)


def rounding(seed: int, size: float = 1.0, rows: float = 0.0) -> AnyArray:
    """Uniform errors, of which each row may have one in common."""
    generator = np.random.default_rng(seed)
    common = rows * generator.uniform(-1, 1, (SHAPE[0], 1))
    return np.asarray(size * generator.uniform(-1, 1, SHAPE) + common)


SAMPLES = [rounding(seed) for seed in range(1, 6)]


@pytest.mark.parametrize("size", [0.0, 0.1, 1.0, 1.9])
def test_rounding_passes(size: float) -> None:
    for seed in range(100, 140):
        assert unlike_rounding(rounding(seed, size), SAMPLES, VALUES) == ""


def test_rows_may_share_a_rounding() -> None:
    samples = [rounding(seed, 0.3, rows=1.0) for seed in range(1, 6)]
    for seed in range(100, 140):
        assert unlike_rounding(rounding(seed, 0.3, rows=1.0), samples, VALUES) == ""


@pytest.mark.parametrize(
    ("errors", "why"),
    [
        (rounding(9, 2.5), "RMS"),
        (rounding(9) + 4 * (np.arange(2048).reshape(SHAPE) == 7), "an element is off by"),
        (rounding(9) + 0.3, "shifted on average by"),
        (rounding(9) + 0.3 * np.sign(VALUES), "scaled on average by"),
        (rounding(9, 0.3) + 2.6 * rounding(8) * (np.arange(32)[:, None] == 3), "dimension 0, index 3 is off"),
        (rounding(9, 0.3) + 2.6 * rounding(8) * (np.arange(64) == 63), "dimension 1, index 63 is off"),
        (rounding(9) * np.where(np.arange(64) % 2, 1.9, 0.01) * 0.5, ""),
    ],
)
def test_a_fault_has_a_direction_or_a_place(errors: AnyArray, why: str) -> None:
    found = unlike_rounding(errors, SAMPLES, VALUES)
    assert found.startswith(why)
    assert bool(found) == bool(why)


def test_what_the_samples_have_in_common_is_granted() -> None:
    shifted = [sample + 0.3 for sample in SAMPLES]
    assert direction(rounding(9) + 0.3, shifted, VALUES) == ""
    assert direction(rounding(9) + 0.6, shifted, VALUES).startswith("shifted on average by 0.6")


def test_few_elements_have_no_direction() -> None:
    assert direction(np.full(15, 0.5), [np.full(15, 0.01)], np.ones(15)) == ""


def test_partitions_number_every_element() -> None:
    for shape in ((), (1,), (5,), (64,), (8, 8), (4, 16, 32), (2, 3, 1)):
        for _, groups in partitions(shape):
            assert groups.shape == (int(np.prod(shape)),)
            assert np.bincount(groups).max() >= 4
