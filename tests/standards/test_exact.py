from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_probe.model.comparison import Allowance
from pytest_probe.numerics.dtypes import float_format
from pytest_probe.standards.exact import Exact
from tests.support.asking import comparison

NAN, INF = np.nan, np.inf


def verdict(actual: Any, expected: Any, dtype: str = "", api: str = "Torch.relu", **more: Any) -> str:
    return Exact().judge(comparison(actual, expected, api=api, dtype=dtype, **more)).verdict


@pytest.mark.parametrize(
    ("actual", "expected", "dtype"),
    [
        ([1.0, -2.5], [1.0, -2.5], "float32"),
        ([0.0, -0.0], [-0.0, 0.0], "float32"),
        ([NAN, INF, -INF], [NAN, INF, -INF], "float32"),
        ([0.1], [0.1], "bfloat16"),
        ([INF], [70000.0], "float16"),
        ([NAN], [1000.0], "float8_e4m3fn"),
        ([448.0], [460.0], "float8_e4m3fn"),
        ([], [], "float32"),
        (1.5, 1.5, "float32"),
        ([1 + 2j, complex(NAN, 1)], [1 + 2j, complex(NAN, 1)], "complex64"),
        ([3, -1], [3, -1], "int64"),
        ([2**63 - 1], [2**63 - 1], "int64"),
        ([True, False], [True, False], "bool"),
    ],
)
def test_the_correctly_rounded_reference_passes(actual: Any, expected: Any, dtype: str) -> None:
    wide = np.asarray(expected, dtype) if dtype in ("int64", "bool") else expected
    assert verdict(actual, wide, dtype) == "pass"
    if np.size(actual):
        assert verdict(np.resize(actual, 20_000), np.resize(wide, 20_000), dtype) == "pass"


@pytest.mark.parametrize(
    ("actual", "expected", "dtype"),
    [
        ([np.nextafter(np.float32(1), np.float32(2))], [1.0], "float32"),
        ([65504.0], [70000.0], "float16"),
        ([NAN], [1.0], "float32"),
        ([1.0], [NAN], "float32"),
        ([INF], [-INF], "float32"),
        ([1 + 2j], [1 - 2j], "complex64"),
        ([2**63 - 2], [2**63 - 1], "int64"),
        ([True], [False], "bool"),
    ],
)
def test_anything_else_is_an_error(actual: Any, expected: Any, dtype: str) -> None:
    wide = np.asarray(expected, dtype) if dtype in ("int64", "bool") else expected
    assert verdict(actual, wide, dtype) == "error"
    many = np.zeros(20_000, np.asarray(wide).dtype)
    assert verdict(np.append(many, actual), np.append(many, wide), dtype) == "error"


@pytest.mark.parametrize(
    ("actual", "expected", "dtype"),
    [
        ([0.0, 1.0], [-0.0, 1.0], "float32"),
        ([-0.0], [0.0], "bfloat16"),
        ([complex(0.0, -0.0)], [complex(0.0, 0.0)], "complex64"),
    ],
)
def test_a_copy_keeps_the_sign_of_zero(actual: Any, expected: Any, dtype: str) -> None:
    assert verdict(actual, expected, dtype, "Torch.cat") == "error"
    assert verdict([*[1.0] * 20_000, *actual], [*[1.0] * 20_000, *expected], dtype, "Torch.cat") == "error"
    assert verdict(expected, expected, dtype, "Torch.cat") == "pass"
    assert verdict(actual, expected, dtype, "Torch.maximum") == "pass"
    assert verdict(actual, expected, dtype, "Torch.cat", direction="backward") == "pass"
    assert verdict(actual, expected, dtype, "Torch.cat", allowance=Allowance(emulated=True)) == "pass"


def test_copies_of_integers_have_no_signed_zeros() -> None:
    assert verdict([0, 1], np.asarray([0, 1]), "int64", "Torch.cat") == "pass"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_cast_of_float64_may_round_to_float32_first(dtype: str) -> None:
    """A little above a tie, and rounded to even from there; the number below that is wrong, and so it is for a
    reference that float32 holds."""
    ulp = 2 * float_format(dtype).roundoff
    above = 1 + 0.5 * ulp + 2.0**-40
    assert Exact().judge(comparison([1.0], [above], dtype=dtype)).verdict == "pass"
    assert Exact().judge(comparison([1 + ulp], [above], dtype=dtype)).verdict == "pass"
    assert Exact().judge(comparison([1 - ulp / 2], [above], dtype=dtype)).verdict == "error"
    assert Exact().judge(comparison([1.0], [1 + 0.5 * ulp + 2.0**-20], dtype=dtype)).verdict == "error"


def test_the_error_counts_and_shows_the_worst_first() -> None:
    actual = np.arange(8, dtype=np.float32)
    actual[2], actual[5] = 2.5, 50.0
    found = Exact().judge(comparison(actual, np.arange(8.0), api="Torch.clone"))
    assert found.reason == "2 of 8 elements differ from the correctly rounded reference; none may"
    assert [element.index for element in found.worst] == [(5,), (2,)]
    assert (found.worst[0].actual, found.worst[0].expected) == (50.0, 5.0)
    assert found.worst[0].ulp == 45 * 2.0**21


def test_integers_are_shown_by_their_difference() -> None:
    found = Exact().judge(comparison(np.array([5, 9]), np.array([5, 2]), api="Torch.clone"))
    assert [(element.actual, element.expected, element.ulp) for element in found.worst] == [(9, 2, 7.0)]


def test_a_bool_and_a_complex_element_can_be_shown() -> None:
    found = Exact().judge(comparison(np.array([True]), np.array([False]), api="Torch.eq"))
    assert (found.worst[0].actual, found.worst[0].expected) == (1, 0)
    found = Exact().judge(comparison(np.array([1 + 2j], np.complex64), np.array([1 + 1j]), api="Torch.clone"))
    assert (found.worst[0].actual, found.worst[0].expected) == ("1+2j", "1+1j")
