from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from pytest_probe.check.judging import judge_with_modes
from pytest_probe.model.comparison import Assumption, Comparison, Evidence
from pytest_probe.model.device_modes import MODES
from pytest_probe.numerics.dtypes import AnyArray, truncated, widen
from pytest_probe.standards.auto import Auto
from pytest_probe.standards.device_modes.allowed import emulations, short
from pytest_probe.standards.device_modes.signature import fitted_factor, shares
from pytest_probe.standards.noise.standard import NoiseStandard
from tests.support.asking import comparison, normal

NAN = math.nan
VALUES = np.exp(normal(2000)) * np.sign(normal(2000, seed=1))


def judged(actual: AnyArray, dtype: str) -> list[str]:
    """The verdicts without a mode, and on each emulation of a device that cuts."""
    asked = comparison(actual, VALUES, dtype=dtype, runs={"perturbed": [VALUES * (1 + 2.0**-24)] * 4})
    cut = emulations(asked, MODES["truncate"])
    return [NoiseStandard().judge(item).verdict for item in (asked, *cut)]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_results_that_are_cut_pass_where_that_is_allowed(dtype: str) -> None:
    cut = truncated(VALUES, np.dtype(comparison(VALUES, VALUES, dtype=dtype).actual.dtype))
    assert judged(cut, dtype) == ["error", "pass"]
    assert judged(VALUES, dtype) == ["pass", "pass"]
    assert judged(cut * np.where(np.arange(2000) == 7, 1.05, 1.0), dtype) == ["error", "error"]


def test_cutting_explains_16_bit_alone() -> None:
    assert judged(VALUES * 1.01, "float32") == ["error"]


def test_a_number_at_the_end_of_a_binade_is_cut_to_the_one_below() -> None:
    dtype = comparison([1.0], [1.0], dtype="bfloat16").actual.dtype
    assert truncated(np.array([1.9999, -1.9999, 2.0, 1.0039]), dtype).tolist() == [1.9921875, -1.9921875, 2.0, 1.0]
    asked = comparison([1.9921875], [1.9999], dtype="bfloat16")
    (cut,) = emulations(asked, MODES["truncate"])
    assert widen(cut.actual).tolist() == [2.0]
    assert list(emulations(replace(asked, precision=np.dtype(np.float32)), MODES["truncate"])) == []


RIGHT = 1 + np.arange(2400.0).reshape(2, 12, 10, 10) / 4096


def rounded(size: float) -> Any:
    """What a mode gives that is off by so much: another number in each sample of its rounding."""

    def alternative(asked: Comparison, assumption: Assumption) -> Comparison:
        off = normal(*RIGHT.shape, seed=1 + (assumption.sample or 0)) * (assumption.sample is not None)
        return replace(asked, expected=RIGHT + size * off, evidence=Evidence())

    return alternative


def test_a_healthy_output_asks_for_no_other_reference() -> None:
    def otherwise(asked: Comparison, assumption: Assumption) -> Comparison | None:
        raise AssertionError("asked")

    asked = comparison(RIGHT, RIGHT, dtype="float32", alternative=otherwise)
    assert judge_with_modes(Auto(), asked, lambda: [MODES["tf32"]]).verdict == "pass"


def test_a_mode_passes_where_it_is_allowed_and_is_named_where_not() -> None:
    actual = RIGHT + 1e-3 * normal(*RIGHT.shape, seed=100)
    asked = comparison(actual, RIGHT, api="Torch.matmul", dtype="float32", alternative=rounded(1e-3))
    passed = judge_with_modes(Auto(), asked, lambda: [MODES["hf32"]])
    assert (passed.verdict, passed.metrics["mode"]) == ("pass", "hf32")
    failed = judge_with_modes(Auto(), asked, lambda: [])
    assert failed.verdict == "error"


ELEMENT = np.arange(RIGHT.size).reshape(RIGHT.shape)


@pytest.mark.parametrize(
    "fault",
    [
        RIGHT * 2.0**-7,
        1e-3 * 8 * normal(*RIGHT.shape, seed=3),
        1e-3 * 8 * normal(*RIGHT.shape, seed=3) * (ELEMENT // 100 == 7),
        1e-3 * 30 * (ELEMENT == 77),
        1e-3 * 4.0 * (ELEMENT % 2 == 0),
        1e-3 * 8 * normal(*RIGHT.shape, seed=3) * (ELEMENT % 10 < 2),
    ],
    ids=["a factor", "too large", "a channel", "one element", "every second element", "columns"],
)
@pytest.mark.parametrize("size", [1.0, 1 / 16])
def test_what_has_not_the_signature_of_rounding_fails(fault: AnyArray, size: float) -> None:
    actual = RIGHT + size * 1e-3 * normal(*RIGHT.shape, seed=100) + fault
    asked = comparison(actual, RIGHT, api="Torch.matmul", dtype="float32", alternative=rounded(1e-3))
    assert judge_with_modes(Auto(), asked, lambda: [MODES["tf32"]], depth=lambda: "none").verdict == "error"


def test_float64_has_no_modes() -> None:
    asked = comparison(RIGHT, RIGHT + 1e-3 * normal(*RIGHT.shape), dtype="float64", alternative=rounded(1e-3))
    assert judge_with_modes(Auto(), asked, lambda: list(MODES.values())).verdict == "error"


def test_the_factor_and_its_error() -> None:
    assert list(fitted_factor(comparison(2 * RIGHT, RIGHT, dtype="float32"))) == pytest.approx(
        [2.0, 0.0], rel=0, abs=1e-12
    )
    assert fitted_factor(comparison([1.0], [1.0], dtype="float32")) == (1.0, np.inf)


def test_shares_of_losses() -> None:
    first, second = np.array([1.0, 0.0, 1.0, NAN]), np.array([0.0, 1.0, 1.0, 1.0])
    assert shares([first, second], 0.75 * first + 0.25 * second) == pytest.approx([0.75, 0.25], rel=1e-6)
    assert shares([first, second], 2 * first - second)[1] == 0.0
    assert shares([first, first], first) == [1.0, 0.0]
    assert shares([second, first], -second) == [0.0, 0.0]


def test_what_the_arithmetic_inside_explains_hides_no_fault_of_a_precise_mode() -> None:
    """Rounding that is 20 times what float32's own rounding gives, as that of operands in two bfloat16 numbers."""

    def alternative(asked: Comparison, assumption: Assumption) -> Comparison:
        off = normal(*RIGHT.shape, seed=1 + (assumption.sample or 0)) * (assumption.sample is not None)
        return replace(asked, expected=RIGHT + 20 * 2.0**-24 * RIGHT * off, evidence=Evidence())

    healthy = RIGHT * (1 + 20 * 2.0**-24 * normal(*RIGHT.shape, seed=100))
    channel = 8 * 20 * 2.0**-24 * normal(*RIGHT.shape, seed=3) * (ELEMENT // 100 == 7)
    for actual, wanted in ((healthy, "pass"), (healthy + channel, "error")):
        asked = comparison(actual, RIGHT, api="Torch.matmul", dtype="float32", alternative=alternative)
        assert judge_with_modes(Auto(), asked, lambda: [MODES["bf16x3"]], depth=lambda: "none").verdict == wanted


@pytest.mark.parametrize(("value", "text"), [(17583.0, "17,600"), (12.84, "12.8"), (1.0, "1"), (0.0, "0")])
def test_numbers_are_short(value: float, text: str) -> None:
    assert short(value) == text
