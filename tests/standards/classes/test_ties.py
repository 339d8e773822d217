from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.standards.classes.ties import Ties
from tests.support.asking import comparison

X = np.array([[5.0, 1.0, 5.0], [2.0, 7.0, 7.0]], np.float32)
WANTED = np.array([[0.5, 0, 0], [0, 0.25, 0]])
OTHER = np.array([[0, 0, 0.5], [0, 0, 0.25]])


def judge(actual: Any, expected: Any = WANTED, values: Any = X, **more: Any) -> OutputVerdict:
    asked = {"api": "Torch.amax", "name": "grad.input.0", "direction": "backward", "args": (values, 1), **more}
    return Ties().judge(comparison(actual, expected, dtype=more.pop("dtype", "float32"), **asked))


def test_the_references_choice_passes_by_noise() -> None:
    found = judge(WANTED)
    assert (found.verdict, found.standard) == ("pass", "noise")


def test_another_of_equal_values_may_get_the_gradient() -> None:
    found = judge(OTHER)
    assert (found.verdict, found.standard, found.shape) == ("pass", "ties", (2, 3))


@pytest.mark.parametrize("wrong", [OTHER * 1.001, OTHER + 0.1, OTHER[::-1]], ids=["scaled", "shifted", "swapped"])
def test_a_wrong_gradient_is_an_error(wrong: Any) -> None:
    found = judge(wrong)
    assert (found.verdict, found.standard) == ("error", "noise")


def test_another_value_may_not_get_it() -> None:
    assert judge([[0, 0.5, 0], [0, 0.25, 0]]).verdict == "error"


def test_without_ties_there_is_no_choice() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert judge(OTHER, values=values).verdict == "error"


def test_pooling_chooses_inside_a_window() -> None:
    values = np.array([[[[1.0, 1.0, 1.0, 1.0]], [[1.0, 1.0, 0.0, 0.0]]]], np.float32)
    wanted = np.array([[[[1.0, 0, 3.0, 0]], [[2.0, 0, 0, 0]]]])
    swapped = np.array([[[[0, 1.0, 0, 3.0]], [[0, 2.0, 0, 0]]]])
    crossed = np.array([[[[3.0, 0, 1.0, 0]], [[2.0, 0, 0, 0]]]])
    for api, size in (("Functional.max_pool2d", (1, 2)), ("Functional.adaptive_max_pool2d", (1, 2))):
        asked = {"values": values, "api": api, "args": (values, size)}
        assert judge(swapped, wanted, **asked).verdict == "pass"
        assert judge(crossed, wanted, **asked).verdict == "error"


def test_a_choice_along_a_dimension_is_made_there() -> None:
    values = np.ones((2, 3), np.float32)
    wanted, crossed = np.array([[1.0, 0, 0], [2.0, 0, 0]]), np.array([[2.0, 0, 0], [0, 1.0, 0]])
    for api, args in (("Torch.amax", (values, 1)), ("Torch.max", (values, -1)), ("Torch.sort", (values,))):
        assert judge(crossed, wanted, values, api=api, args=args).verdict == "error"
    for api, more in (("Torch.amax", ()), ("Torch.max", ()), ("Torch.amax", ((0, 1),))):
        assert judge(crossed, wanted, values, api=api, args=(values, *more)).verdict == "pass"


def test_a_keyword_input_and_another_argument() -> None:
    asked = {"name": "grad.kwargs.input", "args": (), "kwargs": {"input": X}}
    assert judge(OTHER, **asked).verdict == "pass"
    assert judge(OTHER, name="grad.input.1").verdict == "error"


def test_perturbed_runs_are_summed_as_well() -> None:
    runs = {"float64": [WANTED + 0.001 * (X == 5)]}
    assert judge(OTHER + 0.01 * (OTHER == 0.5), runs=runs).verdict == "pass"


def test_a_witness_of_the_elements_is_not_asked_about_the_sums() -> None:
    found = judge(OTHER * 1.001, on_cpu=False, cpu_result=lambda: WANTED.astype(np.float32))
    assert found.verdict == "error"


def test_nan_equals_nothing() -> None:
    values = np.full((2, 3), np.nan, np.float32)
    assert judge(OTHER, values=values).verdict == "error"
