"""An output that is the correctly rounded reference is judged with less work, and not otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray, numpy_dtype, round_to
from pytest_probe.standards import auto
from pytest_probe.standards.auto import Auto
from pytest_probe.standards.noise import standard
from tests.support.asking import comparison

DTYPES = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64")
# Sums, element by element, copies, a table of each kind, and a factory, which has a scale of its own.
APIS = ("Torch.matmul", "Torch.mul", "Torch.gather", "Functional.gelu", "Functional.linear", "Torch.linspace")
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-46, 1e-40, 6e-8, 65519.9, 65520.0, 3.4028235677973366e38, 1e300)
NUMBERS = st.one_of(
    st.sampled_from(SPECIAL), st.floats(-1e3, 1e3), st.floats(width=16), st.floats(allow_nan=True, allow_infinity=True)
)


def judged(actual: AnyArray, expected: AnyArray, api: str, direction: str) -> OutputVerdict:
    with np.errstate(all="ignore"):
        runs = {kind: [expected * 1.5, expected * 0.5] for kind in ("perturbed", "perturbed_more", "perturbed_less")}
        return Auto().judge(comparison(actual, expected, api=api, direction=direction, runs=runs))


def told(verdict: OutputVerdict) -> str:
    """All of it; repr, because NaN is unlike itself."""
    return repr(verdict)


def without_shortcuts(monkeypatch: pytest.MonkeyPatch) -> None:
    for room in (standard, auto):
        monkeypatch.setattr(room, "_is_right", lambda *_: False)


def outputs() -> st.SearchStrategy[tuple[AnyArray, str]]:
    return st.tuples(st.lists(NUMBERS, min_size=1, max_size=40).map(np.array), st.sampled_from(DTYPES))


def rounded(expected: AnyArray, dtype: str) -> tuple[AnyArray, AnyArray]:
    """The right result, and the reference of its kind."""
    with np.errstate(all="ignore"):
        wide = expected + 1j * expected[::-1] if dtype.startswith("complex") else expected
        return round_to(wide, dtype), wide


@given(made=outputs(), api=st.sampled_from(APIS), direction=st.sampled_from(["forward", "backward"]))
def test_the_right_result_is_judged_as_without_the_shortcut(
    made: tuple[AnyArray, str], api: str, direction: str
) -> None:
    actual, expected = rounded(*made)
    quickly = told(judged(actual, expected, api, direction))
    with pytest.MonkeyPatch.context() as monkeypatch:
        without_shortcuts(monkeypatch)
        assert told(judged(actual, expected, api, direction)) == quickly


@given(made=outputs(), api=st.sampled_from(APIS), place=st.integers(0, 39), by=st.sampled_from([1e-3, -1.0, np.nan]))
def test_one_wrong_element_is_no_right_result(made: tuple[AnyArray, str], api: str, place: int, by: float) -> None:
    actual, expected = rounded(*made)
    wrong: Any = np.array(actual)
    with np.errstate(all="ignore"):
        index = place % wrong.size
        wrong[index] = wrong[index].astype(expected.dtype) + by
    quickly = told(judged(wrong, expected, api, "forward"))
    with pytest.MonkeyPatch.context() as monkeypatch:
        without_shortcuts(monkeypatch)
        assert told(judged(wrong, expected, api, "forward")) == quickly


def test_what_is_right_asks_for_no_run_and_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> Any:
        raise AssertionError("a run, or a table, that could change nothing")

    monkeypatch.setattr(standard, "ruled", refused)
    monkeypatch.setattr(auto, "_judged", refused)
    expected = np.full(40, 1 / 3)
    verdict = judged(round_to(expected, "float32"), expected, "Torch.mul", "forward")
    assert (verdict.verdict, verdict.metrics["noise_ratio"], verdict.metrics["k"]) == ("pass", 0.0, 0)
    assert verdict.metrics["max_abs"] == abs(float(np.float32(1 / 3)) - 1 / 3)


def test_16_bit_in_a_wider_tensor_is_measured() -> None:
    """The right number of the wider dtype is one that 16 bit between the kernels would not give."""
    expected = np.full(40, 1 / 3)
    asked = comparison(
        round_to(expected, "float32"), expected, api="Functional.linear", precision=numpy_dtype("bfloat16")
    )
    assert not standard._is_right(asked, {"mismatch": 0.0})
