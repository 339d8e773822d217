from __future__ import annotations

import numpy as np
import pytest

from pytest_probe.inputs import recorded_statistics
from pytest_probe.inputs.recorded_statistics import Statistics


def statistics_of(values: np.ndarray) -> Statistics:
    return Statistics(values.min(), values.max(), values.mean(), float(np.linalg.norm(values)))


def softmax(rng: np.random.Generator, count: int) -> np.ndarray:
    scores = np.exp(rng.standard_normal((count // 64, 64)))
    return (scores / scores.sum(axis=1, keepdims=True)).reshape(-1)


DATA = {
    "normal": lambda rng, count: rng.standard_normal(count),
    "relu": lambda rng, count: np.maximum(rng.standard_normal(count), 0),
    "mask": lambda rng, count: (rng.random(count) < 0.3).astype(float),
    "additive mask": lambda rng, count: np.where(rng.random(count) < 0.3, -1e9, 0.0),
    "softmax": softmax,
    "near one": lambda rng, count: 1 + 0.02 * rng.standard_normal(count),
    "uniform": lambda rng, count: rng.random(count),
    "lognormal": lambda rng, count: np.exp(rng.standard_normal(count)),
    "student": lambda rng, count: rng.standard_t(3, count),
}


@pytest.mark.parametrize("law", DATA)
@pytest.mark.parametrize("count", [64, 512, 1984, 50_048])
def test_all_four_statistics_are_met_within_one_percent(law: str, count: int) -> None:
    for seed in range(10 if count < 10_000 else 2):
        wanted = statistics_of(DATA[law](np.random.default_rng(seed), count))
        made = statistics_of(recorded_statistics.floats(np.random.default_rng(seed + 100), count, wanted))
        assert (made.low, made.high) == (wanted.low, wanted.high)
        assert made.mean == pytest.approx(wanted.mean, rel=0.01)
        assert made.norm == pytest.approx(wanted.norm, rel=0.01)


def test_a_mask_gets_exactly_as_many_ones_as_its_mean_says() -> None:
    made = recorded_statistics.floats(np.random.default_rng(0), 1000, Statistics(0.0, 1.0, 0.123, 123**0.5))
    assert np.count_nonzero(made == 1.0) == 123
    assert np.count_nonzero(made == 0.0) == 877


def test_a_one_hot_row_has_one_one() -> None:
    made = recorded_statistics.floats(np.random.default_rng(0), 100, Statistics(0.0, 1.0, float(np.float32(0.01)), 1.0))
    assert sorted(made.tolist()) == [0.0] * 99 + [1.0]


def test_extremes_stand_at_random_places() -> None:
    wanted = Statistics(-3.0, 3.0, 0.0, 8.0)
    places = [recorded_statistics.floats(np.random.default_rng(seed), 64, wanted).argmax() for seed in range(60)]
    assert len(set(places)) > 25
    small = [recorded_statistics.floats(np.random.default_rng(seed), 2, wanted).tolist() for seed in range(20)]
    assert {tuple(pair) for pair in small} == {(-3.0, 3.0), (3.0, -3.0)}


def test_one_element_is_the_maximum_and_a_constant_is_constant() -> None:
    assert recorded_statistics.floats(np.random.default_rng(0), 1, Statistics(-1.0, 2.0)).tolist() == [2.0]
    assert recorded_statistics.floats(np.random.default_rng(0), 3, Statistics(0.1, 0.1)).tolist() == [0.1, 0.1, 0.1]
    assert recorded_statistics.floats(np.random.default_rng(0), 0, Statistics(0.0, 0.0)).shape == (0,)


def test_three_elements_are_what_the_statistics_leave() -> None:
    made = recorded_statistics.floats(np.random.default_rng(0), 3, statistics_of(np.array([-1.0, 0.25, 2.0])))
    assert sorted(made.tolist()) == pytest.approx([-1.0, 0.25, 2.0], abs=1e-12)


@pytest.mark.parametrize(
    ("mean", "norm"),
    [(0.5, 1e-3), (0.5, 1e30), (-7.0, 3.0), (99.0, 3.0), (0.0, None), (None, None), (1e-3, 0.0)],
)
def test_contradictory_statistics_still_give_numbers_in_range(mean: float | None, norm: float | None) -> None:
    made = recorded_statistics.floats(np.random.default_rng(0), 100, Statistics(-1.0, 1.0, mean, norm))
    assert (made.min(), made.max()) == (-1.0, 1.0)
    assert np.isfinite(made).all()


def test_coarse_statistics_of_narrow_data_keep_a_spread() -> None:
    # bfloat16 weights about one: mean and norm are rounded so coarsely that the variance comes out as anything.
    made = recorded_statistics.floats(np.random.default_rng(0), 256, Statistics(0.945, 1.055, 1.0, 16.0, error=2.0**-8))
    assert 0.01 < made.std() < 0.03


def test_the_whole_float64_range_does_not_overflow() -> None:
    largest = float(np.finfo(np.float64).max)
    made = recorded_statistics.floats(np.random.default_rng(0), 100, Statistics(-largest, largest, 0.0, None))
    assert np.isfinite(made).all()
    assert (made.min(), made.max()) == (-largest, largest)


@pytest.mark.parametrize("chosen", [0, 1, 137, 999, 1000])
def test_choice_is_exact(chosen: int) -> None:
    for seed in range(5):
        assert np.count_nonzero(recorded_statistics.choice(np.random.default_rng(seed), 1000, chosen)) == chosen


def test_choice_has_no_favourite_places() -> None:
    total = sum(recorded_statistics.choice(np.random.default_rng(seed), 10, 3).astype(int) for seed in range(1000))
    assert np.abs(total - 300).max() < 80


def test_integers_hold_both_ends_and_are_exact_beyond_2_to_53() -> None:
    low, high = 2**62 + 1, 2**62 + 3
    made = recorded_statistics.integers(np.random.default_rng(0), 50, low, high)
    assert set(made.tolist()) == {low, low + 1, high}
    assert set(recorded_statistics.integers(np.random.default_rng(0), 2, 0, 1000).tolist()) == {0, 1000}
    assert recorded_statistics.integers(np.random.default_rng(0), 9, 0, 2**64 - 1).dtype == np.uint64


def test_what_piles_up_at_the_minimum_is_the_minimum() -> None:
    """A Beta law of a small exponent would give 1e-29 beside 1, whose square is no float32."""
    wanted = recorded_statistics.Statistics(0.0, 32.0, 0.56, 280.0)
    values = recorded_statistics.floats(np.random.default_rng(0), 10_000, wanted)
    assert values[values > 0].min() >= 32 * 2.0**-48
    assert (values == 0).sum() > 1
