from __future__ import annotations

import numpy as np
import pytest
import torch

from pytest_probe.frameworks.torch.arrays import to_array
from pytest_probe.frameworks.torch.device_arrays import TorchArray, stays
from pytest_probe.model.device_arrays import Bounds
from pytest_probe.numerics.dtypes import float_format
from pytest_probe.numerics.metrics import Description

DTYPES = "float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"


def sides(dtype: str) -> tuple[TorchArray, TorchArray]:
    generator = torch.Generator().manual_seed(3)
    size = 2.0 ** torch.randint(-30, 6, (64, 96), generator=generator)
    expected = torch.randn(64, 96, generator=generator, dtype=torch.float64) * size
    expected[5, :7] = 0
    actual = (expected * (1 + 2e-7 * torch.randn(64, 96, generator=generator))).to(getattr(torch, dtype))
    actual[40, 11] = 384.0
    if dtype != "float64":  # more ulps of zero than there are numbers
        actual[5, 3] = 0.5
    return TorchArray(actual), TorchArray(expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_first_pass(dtype: str) -> None:
    (actual, expected), form = sides(dtype), float_format(dtype)
    bounds = Bounds(form, 2.0**-24, 2.0**-60, 16.0)
    seen = expected.first_pass(actual, form, bounds)
    assert seen is not None
    wanted = Description.of(np.asarray(actual), np.asarray(expected)).metrics()
    found = Description.seen(seen.largest, seen.sum_ulp, seen.differing, expected.size).metrics()
    assert found == {**wanted, "mean_ulp": pytest.approx(wanted["mean_ulp"], rel=1e-12)}
    assert seen.farthest["max_abs"] == 40 * 96 + 11
    ratios = np.abs(np.asarray(actual, np.float64) - np.asarray(expected)) - form.spacing(np.asarray(expected)) / 2
    limit = 16 * np.maximum(2.0**-24 * np.abs(np.asarray(expected)), 2.0**-60)
    above = (ratios > limit) | ((np.asarray(expected) == 0) & (ratios > 0))
    assert seen.open.tolist() == np.flatnonzero(above).tolist()
    assert 40 * 96 + 11 in seen.open
    assert 5 * 96 + 3 in seen.open or dtype == "float64"


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_without_bounds_each_element_is_the_reference_rounded(dtype: str) -> None:
    expected = torch.randn(50, dtype=torch.float64)
    expected[7], expected[9] = 0.0, -0.0
    actual = expected.to(getattr(torch, dtype), copy=True)
    same = TorchArray(expected).first_pass(TorchArray(actual), float_format(dtype), None)
    actual[9] = 0.0
    actual[20] = torch.nextafter(actual[20], torch.tensor(9.0, dtype=actual.dtype))
    other = TorchArray(expected).first_pass(TorchArray(actual), float_format(dtype), None)
    assert same is not None
    assert other is not None
    assert (same.open.tolist(), other.open.tolist()) == ([], [9, 20])


@pytest.mark.parametrize(
    ("side", "value"), [(0, float("inf")), (0, float("nan")), (1, float("inf")), (1, float("nan")), (1, 1e39)]
)
def test_what_is_not_finite_or_beyond_the_format_is_left_to_numpy(side: int, value: float) -> None:
    both = [torch.zeros(20), torch.zeros(20, dtype=torch.float64)]
    both[side][4] = value
    form = float_format("float32")
    assert TorchArray(both[1]).first_pass(TorchArray(both[0]), form, Bounds(form, 2.0**-24, 2.0**-60, 16.0)) is None


@pytest.mark.parametrize("dtype", [*DTYPES, "int64", "bool", "complex64"])
def test_its_bytes_and_parts(dtype: str) -> None:
    tensor = (torch.randn(6, 8) * 3).to(getattr(torch, dtype)).T
    array, values = TorchArray(tensor), to_array(tensor)
    assert (array.shape, array.dtype, array.size, array.ndim) == ((8, 6), values.dtype, 48, 2)
    other = values.copy()
    other[3, 2] = 0 if other[3, 2] != 0 else 1
    assert (array.has_bytes_of(values), array.has_bytes_of(other)) == (True, False)
    places = np.array([1, 5, 7])
    parts = array[(slice(None), slice(1, 3))], array[(places,)], array.reshape(-1)[places], array.reshape(-1)[4:9]
    wanted = values[:, 1:3], values[places], values.reshape(-1)[places], values.reshape(-1)[4:9]
    for part, like in zip(parts, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(part), like)


def test_nan_has_the_bytes_of_nan_and_zeros_have_signs() -> None:
    array = TorchArray(torch.tensor([float("nan"), 0.0]))
    assert array.has_bytes_of(np.array([np.nan, 0.0], np.float32))
    assert not array.has_bytes_of(np.array([np.nan, -0.0], np.float32))


def test_being_near() -> None:
    array = TorchArray(torch.tensor([1.0, -2.0], dtype=torch.float64))
    assert array.is_near(np.array([1.0, -2.0 - 1e-9]), 1e-9, 0.0)
    assert not array.is_near(np.array([1.0, -2.0 - 1e-8]), 1e-9, 0.0)
    for value in (np.nan, np.inf):
        assert not array.is_near(np.array([1.0, value]), 1e-9, 0.0)
        assert not TorchArray(torch.tensor([1.0, value])).is_near(np.array([1.0, 1.0], np.float32), 1e-9, 0.0)


def test_what_numpy_has_no_place_for_does_not_stay() -> None:
    assert stays(torch.ones(3))
    assert not stays(torch.eye(3).to_sparse())
    assert not stays(torch.ones(3, dtype=torch.complex32))
