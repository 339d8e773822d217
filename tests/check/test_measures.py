"""What is measured of a result: right digits, the spread of runs, and how far two tensors lie apart."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from pytest_probe.check.determinism import Repeats
from pytest_probe.check.digits import Digits, digits_of
from pytest_probe.check.pair_metrics import difference
from pytest_probe.model.verdict import Outcome, OutputVerdict
from tests.check.conftest import Make, Plant, normal


def of(bench: Make, *call: object, dtype: str | None = None) -> Digits:
    made = bench(*call)
    found = digits_of(made.run(dtype=dtype), made.checker)
    assert len(found) == 1
    return found[0]


def test_a_right_result_has_all_digits_of_its_dtype(bench: Make) -> None:
    found = of(bench, "Torch.abs", torch.abs, normal(64))
    assert found.description == "7.2 of 7.2 digits (float32 run: 7.2)"
    narrow = of(bench, "Torch.abs", torch.abs, normal(64), dtype="bfloat16")
    assert narrow.description == "2.4 of 2.4 digits (float32 run: 7.2)"


def test_an_error_takes_its_digits(bench: Make, plant: Plant) -> None:
    plant(torch, "tanh", lambda right, *args: right(*args) * 1.001)
    found = of(bench, "Torch.tanh", torch.tanh, normal(64))
    assert found.right == pytest.approx(-math.log10(0.001), abs=0.01)
    assert found.single is not None
    # The float32 run is the same kernel here.
    assert str(found).startswith(
        "3.0 of 7.2 decimal digits are right (float32): the RMS of the errors is 0.001 of that"
    )


def test_a_case_that_did_not_run_has_none(bench: Make) -> None:
    made = bench("Torch.abs", torch.abs, normal(8), edit=lambda data: data["Torch.abs.0.forward"].pop("input_args"))
    assert digits_of(made.run(), made.checker) == ()


def verdict(outcome: Outcome, ratio: float = 0.0, name: str = "output.0") -> OutputVerdict:
    metrics = {"noise_ratio": ratio, "noise_ratio_limit": 64.0}
    return OutputVerdict(name, (2,), "float32", outcome, "noise", "", metrics)


def spread(runs: Iterable[Any]) -> tuple[Any, tuple[str, ...]]:
    """spread_ulp and the notes of runs of one output."""
    repeats = Repeats()
    for run in runs:
        repeats.add({"output.0": run})
    repeats.judged([verdict("pass")])
    return repeats.outputs()[0].metrics["spread_ulp"], repeats.notes()


def test_runs_alike_are_judged_once() -> None:
    repeats = Repeats()
    run = {"output.0": np.ones(2, np.float32)}
    assert [repeats.add(run), repeats.add(run), repeats.add(run)] == [True, False, False]
    repeats.judged([verdict("pass")])
    assert repeats.outputs()[0].metrics["repeats"] == 3
    assert repeats.outputs()[0].metrics["spread_ulp"] == 0.0
    assert repeats.notes() == ()


def test_the_spread_is_that_between_the_extremes() -> None:
    runs = [np.array([1 + step * 2.0**-23, 5.0], np.float32) for step in (1, 0, 3)]
    assert spread(runs) == (
        3.0,
        ("non-deterministic: 2 of 3 runs differ from the first; output.0: 1 of 2 elements, by up to 3 ULP",),
    )


@pytest.mark.parametrize(
    ("first", "second", "ulp"),
    [
        (np.array([1.0], ml_dtypes.bfloat16), np.array([1.0078125], ml_dtypes.bfloat16), 1.0),
        (np.array([1 + 2j], np.complex64), np.array([1 + (2 + 2.0**-21) * 1j], np.complex64), 2.0),
        (np.array([3, 7]), np.array([3, 9]), 2.0),
        (np.array([True]), np.array([False]), 1.0),
        (1.0, 1.0 + 2.0**-50, 4.0),
        (np.array([1.0, np.nan]), np.array([1.0, 1.0]), math.inf),
        (np.array([1.0, np.inf]), np.array([1.0, 1.0]), math.inf),
        (np.array([1.0]), np.array([1.0, 1.0]), math.inf),
        (np.array([np.nan, 1.0]), np.array([np.nan, 1.0 + 2.0**-52]), 1.0),
        (np.array([0.0]), np.array([-0.0]), 0.0),
    ],
)
def test_spread_of_any_kind(first: Any, second: Any, ulp: float) -> None:
    found, notes = spread([first, second])
    assert found == ulp
    assert len(notes) == 1


def test_the_worst_verdict_on_each_output_stays() -> None:
    repeats = Repeats()
    for number, outputs in enumerate(
        (
            [verdict("pass", 3.0), verdict("pass", 1.0, "output.1")],
            [verdict("error", 70.0), verdict("pass", 2.0, "output.1")],
            [verdict("pass", 9.0), verdict("pass", 0.0, "output.1")],
        )
    ):
        repeats.add({"output.0": np.full(2, number), "output.1": np.full(2, number)})
        assert repeats.judged(outputs) == (number < 2)
    assert [(each.verdict, each.metrics["noise_ratio"]) for each in repeats.outputs()] == [
        ("error", 70.0),
        ("pass", 2.0),
    ]


def test_a_missing_output_in_one_run_is_kept() -> None:
    repeats = Repeats()
    repeats.add({"output.0": np.ones(2)})
    repeats.judged([verdict("pass")])
    repeats.add({})
    repeats.judged([verdict("error")])
    assert [each.verdict for each in repeats.outputs()] == ["error"]


def array(values: list[Any], dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.array(values, dtype)


ONE = 2.0**-23
GAP = 8 * ONE
ROOT = math.sqrt(85)
NEXT = float(np.nextafter(np.float32(8), np.float32(9)))
MANY = [1 + 3 * ONE] * 20 + [1.0] * 980
EQUAL = {"equal_bits": 1.0, "largest": 0.0, "ulp_max": 0.0, "ulp_mean": 0.0, "ulp_p99": 0.0, "relative_rmse": 0.0}


@pytest.mark.parametrize(
    ("a", "b", "found"),
    [
        ([1.0, math.nan, -0.0], [1.0, math.nan, -0.0], {**EQUAL, "snr_db": math.inf, "cosine": 1.0}),
        ([0.0, 1.0], [-0.0, 1.0], {"equal_bits": 0.5, "ulp_max": 0.0, "relative_rmse": 0.0}),
        (
            [1.0, 2.0, 4.0, NEXT],
            [1.0, 2.0, 4.0, 8.0],
            {
                **{"equal_bits": 0.75, "largest": GAP, "ulp_max": 1.0, "ulp_mean": 0.25, "ulp_p99": 1.0},
                **{"relative_rmse": GAP / ROOT, "snr_db": 20 * math.log10(ROOT / GAP)},
            },
        ),
        # The coarser dtype gives the ulp.
        (array([1.0 + 2.0**-7, 3.0], ml_dtypes.bfloat16), [1.0, 3.0], {"ulp_max": 1.0, "equal_bits": 0.5}),
        (
            [math.nan, 1.0],
            [1.0, 1.0],
            {"largest": math.inf, "ulp_max": math.inf, "relative_rmse": math.inf, "snr_db": -math.inf},
        ),
        (
            [1e30, 1.0],
            [0.0, 1.0],
            {"ulp_max": float(np.array(1e30, np.float32).view(np.int32)), "largest": 1e30, "relative_rmse": 1e30},
        ),
        ([0.0, 0.0], [1.0, 1.0], {"cosine": None}),
        ([1.0, 0.0], [1.0, 1.0], {"cosine": math.sqrt(0.5)}),
        (array([1, 5], np.int64), array([1, 2], np.int64), {"equal_bits": 0.5, "largest": 3.0}),
        (
            array([1 + 1j, 2], np.complex128),
            array([1 + 1j, 2 + 2j], np.complex128),
            {"equal_bits": 0.5, "largest": 2.0},
        ),
        (MANY, [1.0] * 1000, {"ulp_p99": 3.0, "ulp_max": 3.0, "ulp_mean": 0.06}),
    ],
)
def test_how_far_two_arrays_lie_apart(a: Any, b: Any, found: dict[str, float | None]) -> None:
    difference_of = difference(*(array(each) if isinstance(each, list) else each for each in (a, b)))
    assert {name: getattr(difference_of, name) for name in found} == {
        name: value if value is None or not math.isfinite(value) else pytest.approx(value, rel=1e-7)
        for name, value in found.items()
    }
    assert difference_of.equal == (found.get("equal_bits") == 1.0)
    if np.asarray(a).dtype == np.int64:
        assert difference_of.metrics() == found


def test_shapes_must_be_equal() -> None:
    with pytest.raises(ValueError, match="shape"):
        difference(np.ones(2), np.ones(3))
