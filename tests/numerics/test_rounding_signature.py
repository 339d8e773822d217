from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.numerics.rounding_signature import direction, partitions, scaled, too_far, unlike_rounding

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


def farthest(errors: AnyArray, samples: Sequence[AnyArray], values: AnyArray, ulps: AnyArray) -> str:
    """What `too_far` makes of errors that are not scaled."""
    own, *others = scaled(errors, samples, values, ulps)
    return too_far(own, others, np.abs(errors) > ulps, 1.25)


# How far elements of like size scatter, in ulps: of some sums the terms are large and cancel.
SCALES = np.exp(np.random.default_rng(1).normal(size=SHAPE))
ULPS = np.full(SHAPE, 0.5)


@pytest.mark.parametrize("size", [0.1, 1.0, 1.4, 1.9])
@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("scales", [np.ones(SHAPE), SCALES], ids=["alike", "uneven"])
def test_no_element_of_a_rounding_is_farthest(scales: AnyArray, count: int, size: float) -> None:
    if count == 1 and scales is SCALES:
        return  # one sample does not show how far each element may be off
    samples = [scales * sample for sample in SAMPLES[:count]]
    for seed in range(100, 130):
        assert farthest(scales * rounding(seed, size), samples, VALUES, ULPS) == ""


@pytest.mark.parametrize("extent", [1, 2, 16, 64])
def test_few_elements_are_not_too_far_by_chance(extent: int) -> None:
    for seed in range(100, 140):
        errors, *samples = (rounding(each).ravel()[:extent] for each in (seed, *range(1, 6)))
        assert farthest(errors, samples, VALUES.ravel()[:extent], np.ones(extent)) == ""


@pytest.mark.parametrize(("scales", "off"), [(np.ones(SHAPE), 6), (SCALES, 20)], ids=["alike", "uneven"])
@pytest.mark.parametrize("extent", [64, 2048])
def test_an_element_that_is_off_by_more_than_its_own_samples_is_found(extent: int, scales: AnyArray, off: int) -> None:
    """Though others, of much larger scale, are off by as much."""
    place = int(np.argsort(scales.ravel()[:extent])[extent // 3])
    errors, *samples = ((scales * rounding(each)).ravel()[:extent] for each in (9, *range(1, 6)))
    errors[place] = off * scales.ravel()[place]
    assert (np.abs(samples) > errors[place]).any() == (scales is SCALES and extent > 64)
    assert farthest(errors, samples, VALUES.ravel()[:extent], np.full(extent, 0.1)).startswith("an element is off by")


def test_an_ulp_is_never_farthest() -> None:
    errors = 1.0 * (np.arange(2048).reshape(SHAPE) == 7)
    still = [np.full(SHAPE, 0.01)] * 4
    assert farthest(errors, still, VALUES, np.ones(SHAPE)) == ""
    assert farthest(2.5 * errors, still, VALUES, np.ones(SHAPE)).startswith("an element is off by")


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


@pytest.mark.parametrize("largest", [1e4, 1e38, np.inf, np.nan])
def test_a_large_neighbour_says_nothing_of_an_elements_scale(largest: float) -> None:
    values = np.append(np.linspace(1.0, 2.0, 40), largest)
    error = np.where(np.isfinite(values), values, 0.0) * 2.0**-9 * np.where(np.arange(41) % 2, 1, -1)
    own, *_ = scaled(error, [error] * 5, values, np.full(41, 2.0**-12))
    assert (np.abs(own[:-1]) > 0.5).all()


def test_the_smallest_elements_have_the_scale_of_their_larger_neighbours() -> None:
    """Where terms cancel, errors are as large as those of others; few runs may leave one where it is."""
    values = np.append(1e-6, np.linspace(1.0, 2.0, 40))
    sample = np.append(0.0, np.full(40, 2.0**-9))
    own, *_ = scaled(np.full(41, 2.0**-9), [sample] * 5, values, np.append(2.0**-30, np.full(40, 2.0**-12)))
    assert own[0] < 2
