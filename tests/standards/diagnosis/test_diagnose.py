"""What planted errors are called; exactly, and with what is no such error beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.check.judging import judge_with_modes
from pytest_probe.model.comparison import Assumption, Comparison, Evidence
from pytest_probe.model.verdict import Diagnosis
from pytest_probe.numerics.dtypes import AnyArray, numpy_dtype, round_to, ulp, widen
from pytest_probe.standards.auto import Auto
from pytest_probe.standards.diagnosis import CAUSES, diagnose, diagnose_elements
from pytest_probe.standards.diagnosis.failed_output import wrong_elements
from pytest_probe.standards.diagnosis.precision import DeviceMode
from tests.support.asking import comparison, normal

RIGHT = normal(24, 40) + 0.01
BIAS = normal(40) * 3


def diagnosed(asked: Comparison) -> Diagnosis:
    verdict = Auto().judge(asked)
    assert verdict.verdict == "error"
    found = diagnose(Auto(), asked, verdict)
    assert found is not None
    return found


def cause(actual: Any, expected: Any = RIGHT, dtype: str = "float32", **more: Any) -> str:
    return diagnosed(comparison(actual, expected, dtype=dtype, **more)).cause


def test_a_quick_look_makes_no_run() -> None:
    class Counting(Evidence):
        def with_arguments(self, values: Mapping[str, Any]) -> AnyArray | None:
            asked_for.append(values)
            return None

    asked_for: list[Any] = []
    asked = comparison(RIGHT * 1.001, RIGHT, dtype="float32", args=(RIGHT,))
    asked = replace(asked, evidence=Counting())
    verdict = Auto().judge(asked)
    whole, quick = diagnose(Auto(), asked, verdict), diagnose(Auto(), asked, verdict, "quick")
    assert whole is not None
    assert quick is not None
    assert asked_for
    asked_for.clear()
    diagnose(Auto(), asked, verdict, "quick")
    assert not asked_for
    assert (quick.cause, quick.where, quick.quick) == (whole.cause, whole.where, True)
    assert not whole.quick


def with_rows(rows: Any, values: Any) -> AnyArray:
    changed = RIGHT.copy()
    changed[rows] = values
    return changed


def test_how_much_and_where() -> None:
    values = with_rows(slice(4, 8), RIGHT[4:8] * 1.5)
    values[0, 0], values[1, 1] = np.nan, np.inf
    found = diagnosed(comparison(values, RIGHT, dtype="float32"))
    assert (found.wrong, found.size, found.where) == (162, 960, "rows 4:8 of dim 0")
    assert found.not_finite == {"NaN": (1, 0), "inf": (1, 0)}
    assert found.errors.startswith("<= 0.5 █")
    assert found.errors.endswith(" not finite ULP")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.zeros_like(RIGHT), "zeros everywhere"),
        (with_rows(slice(20, 24), 0.0), "zeros, as memory that nothing was written to"),
        (with_rows(slice(20, 24), np.nan), "NaN where numbers are expected"),
        (with_rows(3, 7.25), "the number 7.25 in all of them: filled, or one result for all"),
        (np.clip(RIGHT, -1, 1), "clamped at 1"),
        (np.where(RIGHT < -1, 0.0, RIGHT), "zero wherever the expected value is below -1"),
        (np.where(RIGHT > 1, np.exp(RIGHT), RIGHT), "wrong wherever the expected value is above 1"),
        (-RIGHT, "negated"),
        (np.abs(RIGHT), "without its sign"),
        (RIGHT * 1.001, "all times 1.001"),
        (RIGHT * 40, "all times 40"),
        (RIGHT * 40 / 39, "all times 40/39"),
        (with_rows(slice(4, 8), RIGHT[4:8] * 3.3), "the wrong ones times 3.3"),
        (RIGHT + 0.25, "all plus 0.25"),
        (np.copysign(RIGHT**2, RIGHT), "squared"),
        (RIGHT * np.linspace(1.1, 2, 24)[:, None], "a factor for each index of dim 0, 1.1 to 2"),
        (RIGHT + np.linspace(1, 2, 24)[:, None], "a number added for each index of dim 0, 1 to 2"),
        (np.roll(RIGHT, 1, 1), "shifted by +1 along dim -1"),
        (np.roll(RIGHT, -1, 0), "shifted by -1 along dim 0"),
        (RIGHT[::-1], "reversed along dim 0"),
        (np.roll(RIGHT, 20, 1), "halves swapped along dim -1"),
        (with_rows([2, 9], RIGHT[[9, 2]]), "swapped: indices 2 and 9 of dim 0"),
        (RIGHT[np.arange(24) ^ 1], "neighbours swapped along dim 0"),
        (with_rows(23, RIGHT[22]), "stale: index 23 of dim 0 equals index 22"),
        (np.repeat(RIGHT[:1], 24, 0), "stale: 23 indices of dim 0 equal index 0"),
        (RIGHT.T.reshape(24, 40), "transposed: the last two dims in each other's order"),
        (round_to(RIGHT, numpy_dtype("bfloat16")), "all results are bfloat16 numbers: rounded to bfloat16"),
        (round_to(RIGHT, numpy_dtype("float16")), "all results are float16 numbers: rounded to float16"),
    ],
)  # fmt: skip
def test_a_cause_is_told_by_the_wrong_values(values: Any, words: str) -> None:
    assert cause(values).startswith(words)


LOGITS = np.linspace(-40, 3, 960).reshape(24, 40)[::-1]
SMALL = 1 / (1 + np.exp(-LOGITS))
TINY = widen(round_to(1e-3 * normal(24, 40), "float32"))
RANDOM = np.random.default_rng(0)
THERE = RANDOM.random(RIGHT.shape) < 0.6
CARRIED = np.repeat(normal(240), 4).reshape(24, 40) * 2.0**-9
WIDE = np.exp(8 * normal(24, 40))
CODES = RANDOM.integers(-100, 128, (24, 40))
CODES[CODES > 100] = 127
WHOLE = np.arange(40) * 3
LINEAR = {"api": "Functional.linear", "args": (normal(24, 8), normal(40, 8), BIAS)}
ADDED = {"api": "Torch.add", "args": (normal(24, 40) * 2, normal(24, 40) * 5)}
FIRST, SECOND = normal(8, 6, seed=1), normal(8, 6, seed=2)
PAIR = {"name": "grad.input.0", "compared": {"grad.input.0": FIRST, "grad.input.1": SECOND}}
ALIKE = {"name": "grad.input.0", "compared": {"grad.input.0": FIRST, "grad.input.1": FIRST}}
SOURCE = normal(30, 40) * 4
INDEXED = {"api": "Tensor.index_add", "args": (RIGHT, 0, np.zeros(30, np.int64), SOURCE)}
COUNTS = {"dtype": "int64", "api": "Torch.bincount"}
ROWS = RIGHT * (1.01 + 0.002 * np.arange(24))[:, None]
UNIFORM = np.random.default_rng(3).uniform(-1, 1, RIGHT.shape)


@pytest.mark.parametrize(
    ("actual", "expected", "asked", "words"),
    [
        # 1 - 1 / (1 + exp(x)) loses its digits; a relative error of the same results is none of it.
        (1 - widen(round_to(1 / (1 + np.exp(LOGITS)), "float32")), SMALL, {},
         "off by up to 2^-25, as small results of numbers near 1"),
        (widen(round_to(np.exp(TINY), "float32")) - 1.0, np.expm1(TINY), {}, "off by up to 2^-24, as small results"),
        # One number here and there is an offset where it is large; one number for another is off by some number.
        (np.where(THERE, RIGHT - 0.245, RIGHT), RIGHT, {}, "the wrong ones plus -0.245"),
        # Errors that a running sum carries on are alike from element to element, and hang on no value.
        (RIGHT + CARRIED, RIGHT, {}, "errors of 2^-10 of its size"),
        # Of rounded exponents most are far below the RMS.
        (WIDE * (1 + 2.0**-8 * (np.random.default_rng(1).random((24, 40)) - 0.5)), WIDE, {},
         "errors of 2^-10 of its size"),
        (RIGHT + 2.0**-9 * UNIFORM, RIGHT, {}, "errors of 2^-1"),
        (ROWS, RIGHT, {"dtype": "bfloat16"}, "a factor for each index of dim 0, 1.0"),
        (np.minimum(CODES + 1, 127), CODES, {"dtype": "int8"}, "one higher"),
        (WHOLE - 1, WHOLE, COUNTS, "all plus -1"),
        (np.where(WHOLE % 2, WHOLE + 1, WHOLE), WHOLE, COUNTS, "one higher"),
        (RIGHT + BIAS, RIGHT, LINEAR, "bias added once too often"),
        (RIGHT - BIAS, RIGHT, LINEAR, "bias missing"),
        (ADDED["args"][0], RIGHT, ADDED, "equals input"),
        (SECOND, FIRST, PAIR, "what grad.input.1 should be"),
        (2 * FIRST, FIRST, PAIR, "all times 2"),
        (with_rows(5, RIGHT[5] - SOURCE[17]), RIGHT, INDEXED, "index 5 of dim 0 lacks index 17 of source"),
        ([3.0], [2.0], {}, "all times 3/2"),
    ],
)  # fmt: skip
def test_a_cause_is_told_by_both_sides(actual: Any, expected: Any, asked: dict[str, Any], words: str) -> None:
    assert cause(actual, expected, **asked).startswith(words)


@pytest.mark.parametrize(
    ("actual", "expected", "asked", "word"),
    [
        (SMALL * (1 + 1e-3 * normal(24, 40)), SMALL, {}, "near 1"),
        (np.where(THERE, 9.0, 2.0), np.full(RIGHT.shape, 2.0), {}, "plus"),
        (RIGHT + np.abs(CARRIED), RIGHT, {}, "errors"),
        (RIGHT + 2.0**-9 * np.sin(3 * RIGHT) ** 2, RIGHT, {}, ""),
        (normal(8, 6, seed=3), FIRST, ALIKE, ""),  # two that should be equal say nothing of each other
        ([2.2345678], [2.0], {}, ""),
        ([2.2, 3.5, 1.0], [2.0, 3.0, 1.5], {}, ""),
    ],
)
def test_a_cause_that_it_is_not(actual: Any, expected: Any, asked: dict[str, Any], word: str) -> None:
    """With "" no cause is named at all."""
    found = cause(actual, expected, **asked)
    assert (word not in found) if word else found == ""


def test_numbers_that_are_cut_have_no_common_factor() -> None:
    asked = comparison(RIGHT, RIGHT, dtype="bfloat16")
    cut = widen(asked.actual).astype(np.float64)
    cut = np.where(np.abs(cut) > np.abs(RIGHT), cut - np.copysign(ulp(RIGHT, numpy_dtype("bfloat16")), RIGHT), cut)
    asked = replace(asked, actual=cut.astype(asked.actual.dtype))
    verdict = Auto().judge(asked)
    without_modes = [each for each in CAUSES if not isinstance(each, DeviceMode)]
    found = diagnose_elements(Auto(), asked, verdict, *wrong_elements(asked, verdict), causes=without_modes)
    assert found.cause == "cut towards zero to bfloat16, not rounded"


def test_one_step_up_is_a_wrong_rounding() -> None:
    asked = comparison(RIGHT, RIGHT, dtype="bfloat16")
    up = replace(asked, actual=np.nextafter(asked.actual, numpy_dtype("bfloat16").type(np.inf)))
    assert diagnosed(up).cause == "one step up: rounded to the wrong side"


class Rerun(Evidence, Struct, frozen=True):
    """A reference that is computed again: x w + b."""

    given: dict[str, Any]

    def with_arguments(self, values: Any) -> AnyArray | None:
        found = {**self.given, **values}
        return np.asarray(found["input.0"] @ found["input.1"].T + found["input.2"])


def test_another_argument() -> None:
    x, w, b = normal(24, 20), normal(40, 20), BIAS
    given = {"input.0": x, "input.1": w, "input.2": b}
    right = x @ w.T + b

    def named(actual: AnyArray) -> str:
        asked = comparison(actual, right, dtype="float32", api="Functional.linear", args=(x, w, b))
        return diagnosed(replace(asked, evidence=Rerun(given))).cause

    assert named(x @ w.T) == "as with zeros for bias"
    assert named(x[:, :16] @ w[:, :16].T + b) == "as without the last 4 of dim 1 of input"
    assert named(np.roll(x, 1, 0) @ w.T + b) == "shifted by +1 along dim 0"
    assert named(x @ np.roll(w, 1, 0).T + b) == "as with weight shifted by +1 along dim 0"
    assert named(right + x[:, 16:] @ w[:, 16:].T) == "as with twice the last 4 of dim 1 of input"
    rounded = np.asarray(round_to(w, numpy_dtype("bfloat16")), dtype=np.float64)
    assert named(x @ rounded.T + b) == "as with weight rounded to bfloat16"


def test_integers_have_errors_to_show() -> None:
    found = diagnosed(comparison([1, 2], [1, 3], dtype="int64"))
    assert (found.where, found.cause, found.errors) == ("element [1]", "", "<= 0.5 █              █ 1")


def test_one_wrong_element_has_no_cause() -> None:
    values = RIGHT.copy()
    values[3, 4] *= 1.3
    found = diagnosed(comparison(values, RIGHT, dtype="float32"))
    assert (found.where, found.cause) == ("element [3, 4]", "")


def test_the_sign_of_zero_is_no_cause() -> None:
    zeros = np.zeros(8)
    asked = comparison(-zeros, zeros, dtype="float32", api="Tensor.clone")
    verdict = Auto().judge(asked)
    assert verdict.verdict == "error"
    assert diagnose(Auto(), asked, verdict) is None


@given(st.floats(-8, 8).filter(lambda f: abs(f - 1) > 1e-3 and abs(f) > 1e-3 and abs(f + 1) > 1e-3))
def test_a_planted_factor_is_named(factor: float) -> None:
    found = diagnosed(comparison(RIGHT * factor, RIGHT, dtype="float32"))
    assert found.family == "factor"


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("factor", [0.0012, 0.95, 0.98, 0.99, 1.01, 1.02, 1.05, 1.1, -1.02])
def test_a_factor_that_comes_before_the_last_rounding_or_after_it_is_named(factor: float, dtype: str) -> None:
    rounded = widen(round_to(RIGHT, dtype))
    assert {cause(factor * values, dtype=dtype) for values in (RIGHT, rounded)} == {f"all times {factor:g}"}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_step_to_one_side_is_no_factor(dtype: str) -> None:
    rounded = widen(round_to(RIGHT, dtype))
    step = np.sign(rounded) * ulp(rounded, dtype)
    assert cause(rounded + step, dtype=dtype) == "one step away from zero: rounded to the wrong side"


class Softmax(Evidence, Struct, frozen=True):
    """A reference that is computed again: softmax(x)."""

    def with_arguments(self, values: Any) -> AnyArray | None:
        return softmax(values["input.0"]) if "input.0" in values else None


def softmax(x: AnyArray) -> AnyArray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("lost", [1, 2, 8])
def test_the_end_of_a_row_that_a_softmax_leaves_out_is_named(lost: int, dtype: str) -> None:
    x = normal(24, 40)

    def named(actual: AnyArray) -> str:
        asked = comparison(actual, softmax(x), dtype=dtype, api="Functional.softmax", args=(x, -1))
        return diagnosed(replace(asked, evidence=Softmax())).cause

    short = softmax(x[:, :-lost])
    assert named(np.pad(short, ((0, 0), (0, lost)))) == f"as without the last {lost} of dim -1 of input"
    assert "without" not in named(np.pad(softmax(0.9 * x[:, :-lost]), ((0, 0), (0, lost))))
    if lost == 1:
        assert named(np.pad(softmax(x[:, 1:]), ((0, 0), (1, 0)))) == "as without the first 1 of dim -1 of input"


@given(st.integers(0, 2**32), st.sampled_from(["float32", "bfloat16", "float16"]))
def test_any_error_is_diagnosed(seed: int, dtype: str) -> None:
    random = np.random.default_rng(seed)
    shape = tuple(random.integers(1, 6, random.integers(0, 4)).tolist())
    values = random.choice([0.0, 1.0, -2.5, np.nan, np.inf, 1e-40, 3e4], shape)
    asked = comparison(values, np.asarray(random.normal(size=shape)), dtype=dtype)
    verdict = Auto().judge(asked)
    if verdict.verdict == "error":
        found = diagnose(Auto(), asked, verdict)
        assert found is not None
        assert 0 < found.wrong <= found.size
        assert found.where
        assert diagnose(Auto(), asked, replace(verdict, basis=None)) == found


def test_what_was_measured_counts_for_its_own_comparison_only() -> None:
    asked = comparison(with_rows(slice(4, 6), 0.0), RIGHT, dtype="float32")
    verdict = Auto().judge(asked)
    other = comparison(with_rows(slice(7, 8), 0.0), RIGHT, dtype="float32")
    found = diagnose(Auto(), other, verdict)
    assert found is not None
    assert (found.wrong, found.where) == (40, "row 7 of dim 0")
    assert judge_with_modes(Auto(), asked, lambda: ()).basis is None
    assert judge_with_modes(Auto(), asked, lambda: (), depth=lambda: "none").basis is None


def test_flushing_is_not_tried_where_all_are_multiplied_by_one_number_but_zero() -> None:
    modes: list[Assumption] = []

    def alternative(asked: Comparison, assumption: Assumption) -> None:
        modes.append(assumption)

    assert cause(RIGHT * 1.001, alternative=alternative) == "all times 1.001"
    assert not modes
    assert cause(RIGHT * 0.0, alternative=alternative) == "zeros everywhere"
    assert modes
