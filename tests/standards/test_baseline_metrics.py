"""What a baseline keeps of an output."""

from __future__ import annotations

import zlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from msgspec.structs import replace

from pytest_probe.check.pair_metrics import baseline_metrics, crc
from pytest_probe.model.comparison import ComparedCase, Comparison, Evidence
from pytest_probe.model.run import BoundCall
from pytest_probe.model.verdict import OutputVerdict

DISTANCES = {"rmse", "max_ulp", "mean_ulp", "carriers"}


def single(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def comparison(actual: Any, expected: Any, *, classes: tuple[str, ...] = (), direction: Any = "forward") -> Comparison:
    values = np.asarray(actual)
    case = ComparedCase(BoundCall("", "", False, True, {}, {}, {}), frozenset(classes), direction, "", True)
    return Comparison("output.0", case, values, np.asarray(expected), values.dtype, 2.0**-24, Evidence())


def kept(asked: Comparison, standard: str = "noise", **metrics: Any) -> dict[str, Any]:
    verdict = OutputVerdict("output.0", asked.actual.shape, asked.actual.dtype.name, "pass", standard, metrics=metrics)
    return dict(baseline_metrics(asked, verdict))


def test_numbers() -> None:
    actual = single(1.0, 2.0, 3.0)
    found = kept(comparison(actual, [1.0, 2.0, 3.0 + 2**-22]), noise_ratio=0.5, k=4)
    assert found == {
        "elements": 3,
        "rmse": pytest.approx(2**-22 / np.sqrt(14), rel=1e-6),
        "max_ulp": 1.0,
        "mean_ulp": pytest.approx(1 / 3),
        "carriers": 2,
        "noise_ratio": 0.5,
        "k": 4,
        "crc": f"{zlib.crc32(actual.tobytes()):08x}",
    }


def test_nan_where_the_reference_is_finite_is_infinitely_wrong() -> None:
    assert kept(comparison(single(1.0, np.nan), [1.0, 2.0]))["rmse"] == np.inf
    assert kept(comparison(single(1.0, np.nan), [1.0, np.nan]))["rmse"] == 0


@pytest.mark.parametrize(
    ("standard", "classes", "direction", "measured"),
    [
        ("noise", (), "forward", True),
        ("exact", (), "forward", True),
        ("noise", ("selection",), "forward", True),
        ("selection", ("selection",), "forward", False),
        ("msprobe", (), "forward", True),
        ("msprobe", ("factorisation",), "backward", False),
        ("msprobe", ("ties",), "forward", True),
        ("msprobe", ("ties",), "backward", False),
        ("msprobe", ("selection",), "backward", True),
    ],
)
def test_what_has_several_right_values_keeps_its_bits_alone(
    standard: str, classes: tuple[str, ...], direction: str, measured: bool
) -> None:
    found = kept(comparison(single(1.0), [1.0], classes=classes, direction=direction), standard)
    assert found.keys() == {"elements", "crc"} | (DISTANCES if measured else set())


@pytest.mark.parametrize("values", [np.array([1, 2]), np.array([True, False])])
def test_integers_keep_their_bits_alone(values: Any) -> None:
    assert kept(comparison(values, values)).keys() == {"elements", "crc"}


@pytest.mark.parametrize("kind", ["random", "uninitialised"])
def test_what_is_other_each_time_keeps_its_number_of_elements(kind: str) -> None:
    assert kept(comparison(single(1.0), [1.0], classes=(kind,)), kind) == {"elements": 1}


def test_under_a_device_mode_the_distances_are_those_from_float64() -> None:
    asked = comparison(single(1.0), [1.0 + 2**-23])
    plain: dict[str, Any] = {"max_ulp": 9.0, "mean_ulp": 9.0, "nonfinite_mismatch": 0}
    assert kept(asked, **plain)["max_ulp"] == 9.0
    assert kept(asked, **plain, mode="tf32")["max_ulp"] == 1.0


def test_the_crc_is_of_values_in_their_order() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert crc(values.T) == crc(values.T.copy()) != crc(values)
    assert crc(np.array(1.5, np.float32)) == f"{zlib.crc32(np.float32(1.5).tobytes()):08x}"
    assert crc(np.ones(2, ml_dtypes.bfloat16)) == f"{zlib.crc32(bytes.fromhex('803f803f')):08x}"
    assert crc(np.ones((0, 3))) == "00000000"
    assert crc(single(0.0)) != crc(single(-0.0))


def test_empty() -> None:
    found = kept(replace(comparison(np.zeros((0, 3), np.float32), np.zeros((0, 3)))))
    assert (found["rmse"], found["elements"], found["carriers"]) == (0.0, 0, 0)
