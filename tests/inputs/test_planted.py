from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pytest_probe.inputs.planted import plant, supposed
from pytest_probe.model.dump import TensorSpec
from tests.inputs.conftest import Build

NORMAL = TensorSpec("float32", (16, 64), 3.2, -3.1, 0.01, 32.0)
POSITIVE = TensorSpec("float32", (16, 64), 3.2, 0.1, 1.0, 38.0)


def ties(values: np.ndarray) -> int:
    return int(values.size - np.unique(values).size)


@pytest.mark.parametrize("dtype", [None, "bfloat16", "float16"])
def test_a_few_zeros_and_ties_stand_in_every_tensor(arguments: Build, dtype: str | None) -> None:
    values = arguments(NORMAL, dtype=dtype).args[0].array.astype(np.float64)
    zeros = values[values == 0]
    assert (zeros.size, int(np.signbit(zeros).sum())) == (3, 1)
    assert ties(values) >= 5
    assert (values.max(), values.min()) == (pytest.approx(3.2, rel=4e-3), pytest.approx(-3.1, rel=4e-3))


def test_a_row_has_two_largest_elements(arguments: Build) -> None:
    values = arguments(TensorSpec("float32", (64, 64), 4.0, -4.0, 0.0, 64.0)).args[0].array
    assert ((values == values.max(axis=1, keepdims=True)).sum(axis=1) > 1).any()


def test_only_single_elements_are_other_than_without(arguments: Build) -> None:
    planted, plain = (arguments(NORMAL, api=api).args[0].array for api in ("Torch.exp", "Torch.log"))
    assert 0 < np.count_nonzero(planted != plain) <= 8
    assert planted.mean() == pytest.approx(plain.mean(), abs=1e-7)
    assert np.linalg.norm(planted) == pytest.approx(np.linalg.norm(plain), rel=0.01)


def test_no_zero_where_the_range_has_none(arguments: Build) -> None:
    signs = arguments(TensorSpec("float32", (100,), 1.0, -1.0, 0.0, 10.0)).args[0].array
    assert set(np.unique(signs).tolist()) == {-1.0, 1.0}
    values = arguments(POSITIVE).args[0].array
    assert np.count_nonzero(values == 0) == 0
    assert ties(values) >= 2


@pytest.mark.parametrize(
    ("api", "place"),
    [
        *(("Torch.log", 0), ("Torch.rsqrt", 0), ("Torch.div", 1)),
        *(("Tensor.__rtruediv__", 0), ("Torch.prod", 0), ("Torch.unique", 0)),
    ],
)
def test_nothing_is_planted_where_zero_is_a_pole(arguments: Build, api: str, place: int) -> None:
    others: tuple[Any, ...] = (NORMAL, NORMAL) if place else (NORMAL, 1.0) if "div" in api else (NORMAL,)
    values = arguments(*others, api=api).args[place].array
    assert np.count_nonzero(values == 0) == ties(values) == 0
    if api == "Torch.div":
        assert np.count_nonzero(arguments(*others, api=api).args[0].array == 0) == 3


@pytest.mark.parametrize(
    "spec",
    [
        TensorSpec("float32", (63,), 3.0, -3.0, 0.0, 8.0),
        TensorSpec("float32", (100,), 2.0, 2.0, 2.0, 20.0),
        TensorSpec("float32", (100,), 0.0, -math.inf, -math.inf, math.inf),
        TensorSpec("float32", (100,)),
    ],
)
def test_the_few_the_equal_and_the_unknown_stay(spec: TensorSpec) -> None:
    values = np.linspace(-1, 1, spec.size)
    plant(values, spec, np.random.default_rng(0))
    assert (values == np.linspace(-1, 1, spec.size)).all()


@pytest.mark.parametrize("share", [0.3, 0.5, 0.8])
def test_what_relu_left_has_as_many_zeros(share: float) -> None:
    rng = np.random.default_rng(0)
    true = np.where(rng.random(10_000) < share, 0.0, np.abs(rng.standard_normal(10_000)))
    spec = TensorSpec("float32", true.shape, true.max(), 0.0, true.mean(), float(np.linalg.norm(true)))
    assert supposed(spec).zeros == pytest.approx(share, abs=0.03)


def test_rows_of_what_relu_left_are_zero(arguments: Build) -> None:
    values = arguments(TensorSpec("float32", (64, 64), 4.0, 0.0, 0.4, 45.0)).args[0].array
    assert (values == 0).mean() == pytest.approx(0.49, abs=0.05)
    assert (values == 0).all(axis=1).sum() >= 2
    assert values.mean() == pytest.approx(0.4, rel=0.01)
    assert np.linalg.norm(values) == pytest.approx(45.0, rel=0.01)


@pytest.mark.parametrize(
    "spec",
    [
        NORMAL,
        POSITIVE,
        TensorSpec("float32", (1000,), 1.0, 0.0, 0.3, 300**0.5),
        TensorSpec("float32", (1000,), 1.0, 0.0, 0.5, (1000 / 3) ** 0.5),
        TensorSpec("float32", (1000,), 3.0, 0.0, 0.4, 15.8, zeros=0.0),
        TensorSpec("float32", (1000,), 3.0, 0.0),
    ],
)
def test_other_statistics_imply_no_zeros(spec: TensorSpec) -> None:
    assert supposed(spec) is spec
