"""The tools' standards on arrays: which rule, against which reference, with which limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_probe.errors import Unsupported
from pytest_probe.standards import STANDARDS
from pytest_probe.standards.tools import measures
from tests.support.asking import comparison, normal

X = normal(4, 5)


def test_all_metrics_that_apply_are_measured() -> None:
    found = measures(comparison(X * (1 + 2.0**-20), X, dtype="float32"), "auto")
    assert found["count"] == 20
    assert 0.9e-6 < float(found["max_rel_error"]) < 1.1e-6
    assert "mean_rel_error" in found


def test_integers_have_few() -> None:
    found = measures(comparison(np.array([1, 2]), np.array([1, 3])), "auto")
    assert (found["binary_mismatch_ratio"], "rmse" in found) == (0.5, False)


def test_the_tool_says_what_is_small() -> None:
    asked = comparison(np.full(4, 5e-7), np.full(4, 4e-7), dtype="float32")
    assert measures(asked, "auto")["small_value_error_ratio"] == 1.0
    assert measures(asked, "msprobe-26")["small_value_error_ratio"] == 1.0
    tiny = comparison(np.full(4, 5e-10 + 4e-7), np.full(4, 4e-7), dtype="float32")
    assert measures(tiny, "msprobe-1.0")["small_value_error_ratio"] == 0.0


VALUES = 1 + np.abs(normal(2000))
TOOLS = ("msprobe", "msprobe-1.0", "msprobe-8", "msprobe-26", "paddleapex", "mindspore", "ptdbg")
LISTED = ("absolute_threshold", "binary", "ulp", "thousandth", "accumulative")
RULES = (*LISTED, "benchmark")
THREE_STATES = ("msprobe", "msprobe-1.0", "msprobe-8", "msprobe-26", "paddleapex", "benchmark")
DTYPES = ("float16", "bfloat16", "float32")


def verdict(standard: str, actual: Any, expected: Any = VALUES, **more: Any) -> str:
    asked = comparison(actual, expected, **{"dtype": "float32", "api": "Functional.softmax", **more})
    return STANDARDS[standard].judge(asked).verdict


@pytest.mark.parametrize("name", [*TOOLS, *RULES])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_correctly_rounded_output_passes_but_by_shares_in_16_bit(name: str, dtype: str) -> None:
    found = verdict(name, VALUES, dtype=dtype)
    if name == "binary":
        assert found == "error"  # nothing but the float64 reference itself equals it
    elif dtype == "bfloat16" and name in THREE_STATES:
        assert found == "warning"  # half an ulp is more than a thousandth
    elif dtype == "bfloat16" and name == "thousandth":
        assert found == "error"
    else:
        assert found == "pass"


@pytest.mark.parametrize("name", [*TOOLS, *RULES])
@pytest.mark.parametrize("dtype", [*DTYPES, "float64", "complex64"])
def test_a_wrong_output_is_found(name: str, dtype: str) -> None:
    assert verdict(name, VALUES[::-1] * 2, dtype=dtype) == "error"


@pytest.mark.parametrize("name", TOOLS)
def test_a_failure_shows_its_worst_elements(name: str) -> None:
    wrong = VALUES.copy()
    wrong[[3, 7]] = 1e6, 2e6
    found = STANDARDS[name].judge(comparison(wrong, VALUES, dtype="float32", api="Functional.softmax"))
    assert [element.index for element in found.worst[:2]] == [(7,), (3,)]
    assert STANDARDS[name].judge(comparison(VALUES, VALUES, dtype="float32", api="Functional.softmax")).worst == ()


@pytest.mark.parametrize("name", [*TOOLS, *RULES])
@pytest.mark.parametrize("dtype", ["int64", "bool"])
def test_integers_are_exact(name: str, dtype: str) -> None:
    values = np.array([0, 1, 1, 0], dtype)
    assert verdict(name, values, values, dtype="") == "pass"
    assert verdict(name, 1 - values.astype(int), values, dtype=dtype) == "error"


@pytest.mark.parametrize(
    ("api", "rule"),
    [
        ("Functional.linear", "ulp"),
        ("Tensor.__mul__", "absolute_threshold"),
        ("Functional.conv2d", "thousandth"),
        ("Tensor.__truediv__", "benchmark"),
        ("Torch.sort", "binary"),
    ],
)
def test_msprobe_chooses_by_the_apis_exact_name(api: str, rule: str) -> None:
    found = STANDARDS["msprobe"].judge(comparison(VALUES, VALUES, dtype="float32", api=api))
    assert found.metrics["rule"] == rule


@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 1e-6), ("float16", 1e-3), ("bfloat16", 4e-3)])
def test_absolute_thresholds_from_both_sides(dtype: str, rtol: float) -> None:
    exact = np.array([1024.0, 2.0])
    spacing = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
    steps = max(1, int(rtol / spacing)) if dtype != "bfloat16" else 1
    right = exact * [1 + steps * spacing, 1.0]
    reference = exact * [1 + steps * spacing - rtol * 0.99, 1.0]
    wrong = exact * [1 + steps * spacing - rtol * 1.01, 1.0]
    assert verdict("absolute_threshold", right, reference / 1.0, dtype=dtype) == "pass"
    assert verdict("absolute_threshold", right, wrong, dtype=dtype) == "error"


@pytest.mark.parametrize(
    ("dtype", "small", "limit"), [("float32", 5e-7, 1e-9), ("float16", 5e-4, 1e-5), ("bfloat16", 5e-4, 1e-5)]
)
def test_small_values_have_an_absolute_threshold(dtype: str, small: float, limit: float) -> None:
    actual = np.asarray(comparison([small], [small], dtype=dtype).actual, np.float64)
    assert verdict("absolute_threshold", actual, actual + limit * 0.99, dtype=dtype) == "pass"
    assert verdict("absolute_threshold", actual, actual + limit * 1.01, dtype=dtype) == "error"


@pytest.mark.parametrize(("dtype", "balance"), [("float32", 2.0**-14), ("float16", 2.0**-20), ("bfloat16", 2.0**-7)])
def test_accumulative_balance(dtype: str, balance: float) -> None:
    """A share of `balance` may err to one side alone: of 2^14 elements, or as many as make one the limit."""
    size = max(2**14, round(1 / balance))
    actual = np.full(size, 0.5)
    for count, found in ((round(size * balance), "pass"), (round(size * balance) + 1, "error")):
        expected = actual.copy()
        expected[:count] = 0.5 + np.spacing(np.float32(0.5)) * (2**16 if dtype == "bfloat16" else 2**13)
        assert verdict("accumulative", actual, expected, dtype=dtype) == found


@pytest.mark.parametrize(
    ("dtype", "most", "roundoff", "share"),
    [("float32", 32, 2.0**-23, 0.05), ("float16", 1, 2.0**-10, 0.001), ("bfloat16", 1, 2.0**-7, 0.001)],
)
def test_ulps_from_both_sides(dtype: str, most: int, roundoff: float, share: float) -> None:
    """Below a share of elements may be beyond the most ULP, where one is so far off that the mean does not decide."""
    limit = round(2000 * share)
    for count, beyond, found in ((limit - 1, 1.01, "pass"), (limit, 1.01, "error"), (limit, 1.0, "pass")):
        expected = np.full(2000, 1.5)
        expected[:count] -= beyond * most * roundoff
        expected[0] = 1.0
        assert verdict("ulp", np.full(2000, 1.5), expected, dtype=dtype) == found


@pytest.mark.parametrize(("dtype", "bound"), [("float32", 2.0**-11), ("float16", 2.0**-8), ("bfloat16", 2.0**-7)])
def test_accumulative_bounds(dtype: str, bound: float) -> None:
    actual, sign = np.full(4, 0.5), np.array([1, -1, 1, -1])
    assert verdict("accumulative", actual, actual + sign * bound * 0.99, dtype=dtype) == "pass"
    assert verdict("accumulative", actual, actual + sign * bound * 1.01, dtype=dtype) == "error"
    assert verdict("accumulative", actual, actual + bound * 0.99, dtype=dtype) == "error"  # all to one side


def test_the_reference_of_16_bit_is_float32_for_the_tools() -> None:
    expected = np.full(2, 1 + 2.0**-30)
    asked = comparison(expected, expected, dtype="float16", api="Functional.softmax")
    assert STANDARDS["msprobe-1.0"].judge(asked).metrics["max_abs_error"] == 0
    assert float(STANDARDS["msprobe"].judge(asked).metrics["max_abs_error"]) > 0


def test_nan_on_both_sides_is_right_but_for_the_older_tools() -> None:
    values = np.array([1.0, np.nan, 3.0])
    assert verdict("msprobe", values, values) == "pass"
    assert verdict("ptdbg", values, values) == "pass"
    for name in ("msprobe-1.0", "msprobe-8", "paddleapex", "mindspore"):
        assert verdict(name, values, values) == "error"


@pytest.mark.parametrize(("size", "zeros", "found"), [(99, 99, "pass"), (100, 9, "pass"), (100, 10, "error")])
def test_dropout_may_be_ten_percent_off(size: int, zeros: int, found: str) -> None:
    kept = np.arange(size) >= zeros
    for name in THREE_STATES:
        assert verdict(name, 1.0 * kept, np.ones(size), api="Functional.dropout") == found


@pytest.mark.parametrize("name", [*TOOLS, *RULES])
@pytest.mark.parametrize("api", ["Torch.rand", "Torch.empty"])
def test_what_has_no_one_right_answer_is_not_judged(name: str, api: str) -> None:
    with pytest.raises(Unsupported):
        verdict(name, VALUES, VALUES, api=api)


def test_empty_outputs() -> None:
    nothing = np.zeros((0, 3))
    assert verdict("msprobe", nothing, nothing) == "pass"
    assert verdict("paddleapex", nothing, nothing) == "error"
    for name in ("msprobe-1.0", "msprobe-8", "msprobe-26", "mindspore"):
        with pytest.raises(Unsupported):
            verdict(name, nothing, nothing)
