"""How many times as much the errors of correlated elements scatter as those of independent ones."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_probe.numerics.design_effect import design_effect


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
