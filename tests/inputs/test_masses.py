from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pytest_probe.inputs.generated import generate
from pytest_probe.model.dump import TensorSpec

INF = math.inf


def made(true: np.ndarray, **told: Any) -> np.ndarray:
    """Generated values by the record of these ones."""
    spec = TensorSpec(
        "float32", true.shape, true.max(), true.min(), float(true.mean()), float(np.linalg.norm(true)), **told
    )
    values = generate(spec, np.random.default_rng(1))
    assert (values.max(), values.min()) == (true.max(), true.min())
    return values


def near(values: np.ndarray, true: np.ndarray) -> None:
    """Mean, beside the root mean square, and norm are those recorded."""
    norm = float(np.linalg.norm(true))
    assert abs(values.mean() - true.mean()) < 0.01 * norm / true.size**0.5
    assert np.linalg.norm(values) == pytest.approx(norm, rel=0.01)


def data(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((64, 128))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
@pytest.mark.parametrize("relu", [False, True])
def test_the_share_of_zeros(share: float, relu: bool) -> None:
    true = np.abs(data()) if relu else data()
    true[np.random.default_rng(2).random(true.shape) < share] = 0.0
    values = made(true, zeros=float((true == 0).mean()))
    assert np.count_nonzero(values == 0) == pytest.approx(np.count_nonzero(true == 0), abs=1)
    near(values, true)


def test_the_most_frequent_value() -> None:
    true = np.clip(data(), -3, 0.5)
    values = made(true, zeros=0.0, mode=(0.5, float((true == 0.5).mean())))
    assert np.count_nonzero(values == 0.5) == pytest.approx(np.count_nonzero(true == 0.5), abs=1)
    near(values, true)


def test_a_sampled_share_of_a_mask_gives_way_to_the_mean() -> None:
    true = (data() > 0.5).astype(float)
    values = made(true, zeros=0.66, mode=(1.0, 0.32))
    assert values.mean() == true.mean()
    assert set(np.unique(values).tolist()) == {0.0, 1.0}


def test_rows_of_one_value_are_whole_rows() -> None:
    true = data()
    true[40:] = 0.0
    values = made(true, zeros=24 / 64, constant_rows=(24 / 64, 0.0))
    assert (values == 0).all(axis=1).sum() == 24
    assert np.count_nonzero(values == 0) == 24 * 128
    near(values, true)


def test_rows_may_have_values_of_their_own() -> None:
    true = data()
    true[::2] = true[::2, :1]
    values = made(true, zeros=0.0, constant_rows=(0.5, None))
    rows = (values == values[:, :1]).all(axis=1)
    assert rows.sum() == 32
    assert np.unique(values[rows, 0]).size == 32
    near(values, true)


def test_every_row_may_be_constant() -> None:
    true = np.repeat(data()[:, :1], 128, axis=1)
    values = made(true, zeros=0.0, constant_rows=(1.0, None))
    assert (values == values[:, :1]).all()
    near(values, true)


def test_hidden_rows_of_a_mask() -> None:
    told: dict[str, Any] = {"nan": 0, "inf": 1000, "negative_inf": 1000, "zeros": 0.75, "constant_rows": (0.25, -INF)}
    values = generate(TensorSpec("float32", (32, 128), 0.0, -INF, -INF, INF, **told), np.random.default_rng(0))
    hidden = np.isneginf(values)
    assert (hidden.sum(), hidden.all(axis=1).sum()) == (1024, 8)
    open_rows: dict[str, Any] = {"nan": 0, "inf": 1000, "zeros": 0.75, "constant_rows": (0.25, 0.0)}
    values = generate(TensorSpec("float32", (32, 128), 0.0, -INF, -INF, INF, **open_rows), np.random.default_rng(0))
    assert (values == 0).all(axis=1).sum() >= 8
    assert np.isneginf(values).sum() == 1000


def test_as_many_of_each_sign_of_inf() -> None:
    told: dict[str, Any] = {"high": 2.0, "low": -2.0, "nan": 3, "inf": 9, "negative_inf": 7}
    values = generate(TensorSpec("float32", (10, 10), math.nan, math.nan, **told), np.random.default_rng(0))
    assert (np.isnan(values).sum(), np.isneginf(values).sum(), np.isposinf(values).sum()) == (3, 7, 2)


@pytest.mark.parametrize(
    "told",
    [
        {"zeros": 1.0},
        {"zeros": 0.9, "mode": (7.0, 0.5)},
        {"zeros": 0.5, "constant_rows": (0.99, 0.0)},
        {"zeros": 0.0, "constant_rows": (0.5, -INF)},
        {"zeros": 0.0, "mode": (-1.0, 1.0)},
    ],
)
@pytest.mark.parametrize("shape", [(3,), (70,), (2, 2), (9, 1), (5, 4, 3)])
def test_what_contradicts_still_gives_numbers_in_range(shape: tuple[int, ...], told: dict[str, Any]) -> None:
    spec = TensorSpec("float32", shape, 2.0, -1.0, 0.1, 3.0, **told)
    values = generate(spec, np.random.default_rng(0))
    assert values.shape == shape
    assert np.isfinite(values).all()
    assert (values.max(), values.min()) == (2.0, -1.0)
