from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_probe.numerics.statistics import (
    design_effect,
    groups_of_equal,
    has_distinct,
    spread_line,
    stable_order,
)


@pytest.mark.parametrize(
    ("values", "count", "told"),
    [
        ([], 1, False),
        ([1.0, 1.0, 2.0], 2, True),
        ([1.0, 1.0, 2.0], 3, False),
        ([np.nan, np.nan, 0.0], 2, True),
        ([np.nan, np.nan, 0.0], 3, False),
        ([0.0, -0.0], 2, False),
        ([1.0] * 64 + [2.0, 3.0], 3, True),
        ([1.0] * 64 + [2.0, 3.0], 4, False),
        (np.arange(64 + 1.0), 64 + 1, True),
    ],
)
def test_as_many_different_values_as_asked(values: list[float], count: int, told: bool) -> None:
    assert has_distinct(np.array(values), count) is told
    assert has_distinct(np.array([values]), count) is told


RANDOM = np.random.default_rng(0)
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45, -1e-45, 3.4e38, -3.4e38, 1.0, -1.0])


@pytest.mark.parametrize(
    "values",
    [
        RANDOM.standard_normal(40_000).astype(np.float32).astype(np.float64),
        RANDOM.standard_normal(40_000),
        RANDOM.choice(SPECIAL, 40_000),
        np.where(RANDOM.random(40_000) < 0.5, RANDOM.choice(SPECIAL, 40_000), RANDOM.random(40_000)),
        RANDOM.integers(-3, 3, (200, 200)).astype(np.float64),
        RANDOM.standard_normal((200, 200)).astype(np.float32).astype(np.float64).T,
        np.zeros(40_000),
        RANDOM.standard_normal(7),
    ],
    ids=["float32", "float64", "special", "special float64", "ties", "turned", "equal", "few"],
)
def test_order(values: Any) -> None:
    assert np.array_equal(stable_order(values), np.argsort(values, axis=None, kind="stable"))
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    _, *wanted = np.unique(single, return_index=True, return_inverse=True, equal_nan=False)
    for found, expected in zip(groups_of_equal(single), wanted, strict=True):
        assert np.array_equal(found, expected.ravel())


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("shape", [(4000,), (40, 100), (8, 5, 20, 10)])
def test_independent_elements_have_an_effect_near_one(shape: tuple[int, ...]) -> None:
    found = [design_effect(list(normal(4, *shape, seed=seed)), np.zeros(shape)) for seed in range(40)]
    assert 1.0 <= np.median(found) < 2.0
    assert max(found) < 8.0


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_elements_of_a_slice_that_share_their_error_count_as_one(axis: int) -> None:
    shape = [12, 10, 8]
    shared = normal(4, *(1 if other == axis else size for other, size in enumerate(shape)))
    found = design_effect(list(np.broadcast_to(shared, (4, *shape))), np.ones(shape))
    assert shape[axis] * 0.9 <= found <= shape[axis] * 4


def test_the_scale_of_elements_does_not_count() -> None:
    runs, sizes = normal(4, 50, 60), np.exp(5 * normal(50, 60, seed=1))
    zero = np.zeros((50, 60))
    assert design_effect(list(runs * sizes), zero) == pytest.approx(design_effect(list(runs), zero))


def test_a_running_sum_hands_its_errors_on() -> None:
    effect = design_effect(list(normal(4, 8, 3000).cumsum(-1)), np.zeros((8, 3000)))
    assert 300 < effect < 24000


def test_nothing_is_known_of_one_run_or_of_runs_that_do_not_move() -> None:
    zero = np.zeros((3, 4))
    assert design_effect([], zero) == design_effect([zero + 1], zero) == design_effect([zero, zero], zero) == 1.0
    assert design_effect([zero + np.nan, zero + np.inf], zero) == 1.0


@pytest.mark.parametrize(
    ("errors", "text"),
    [
        ([], ""),
        ([0.0, 0.5], "all at most 0.5"),
        ([0.0, 0.5 * 2.0**16], f"<= 0.5 █{' ' * (16 - 2)}█ 3.3e+04"),
        ([0.0] * 63 + [0.5 * 2.0**16], f"<= 0.5 █{' ' * (16 - 2)}▂ 3.3e+04"),
    ],
)
def test_a_line(errors: list[float], text: str) -> None:
    assert spread_line(np.array(errors)) == text


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_last(value: float) -> None:
    assert spread_line(np.array([0.0, value])) == f"<= 0.5 █{' ' * (16 - 2)}█ not finite"


def test_the_spread_of_errors_beyond_the_line_says_so() -> None:
    """A float64 next to zero may be 1e17 ULP off, which is a number."""
    assert spread_line(np.array([0.0, 1e17])) == f"<= 0.5 █{' ' * (16 - 2)}█ >= 1e+15"


def test_a_few_of_many_show() -> None:
    errors = np.zeros(1_000_000)
    errors[0] = 1e6
    assert spread_line(errors) == f"<= 0.5 █{' ' * (16 - 2)}▁ 1e+06"
