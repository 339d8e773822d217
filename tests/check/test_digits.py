"""How many decimal digits are right, beside the reference's own float32 run."""

from __future__ import annotations

import math

import pytest
import torch

from pytest_probe.check.digits import Digits, digits_of
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
