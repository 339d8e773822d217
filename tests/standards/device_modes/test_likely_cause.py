from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pytest_probe.core.comparison import Assumption, Comparison, Evidence
from pytest_probe.core.device_modes import MODES
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.standards.auto import Auto
from pytest_probe.standards.device_modes.emulate import fitted_factor, short
from pytest_probe.standards.device_modes.judge import judged_with_modes
from pytest_probe.standards.device_modes.likely_cause import confined, diagnose
from tests.support.asking import comparison, normal

RIGHT = 1 + np.arange(2400.0).reshape(2, 12, 10, 10) / 4096


def wrong(*place: Any, factor: float = 1.01) -> Comparison:
    """A comparison whose output is right but for one place."""
    values = RIGHT.copy()
    values[place] *= factor
    return comparison(values, RIGHT, dtype="float32")


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ((0, 3, 4, 5), "1 of 2,400 elements, at [0, 3, 4, 5]"),
        ((1, 3, [4, 5], 5), "2 of 2,400 elements, first at [1, 3, 4, 5]"),
        ((1,), "the last row only (index 1 of axis 0)"),
        ((slice(None), 7), "one slice only (index 7 of axis 1)"),
        ((..., 0), "the first column only (index 0 of axis 3)"),
        ((slice(None), slice(10, 12)), "the last 2 slices only (from index 10 of axis 1 on)"),
    ],
)
def test_where_the_error_is(place: Any, words: str) -> None:
    assert confined(wrong(*place)) == words


def test_one_element_is_no_column() -> None:
    values = np.ones((2, 3)) * [[1.0], [1.01]] ** np.array([1, 0, 0])
    assert confined(comparison(values, np.ones((2, 3)), dtype="float32")) == "1 of 6 elements, at [1, 0]"


def test_an_error_at_the_edges() -> None:
    values = RIGHT * 1.01
    values[..., 2:-2, 2:-2] = RIGHT[..., 2:-2, 2:-2]
    asked = comparison(values, RIGHT, dtype="float32")
    assert confined(asked) == "the edges only (the outer 2 of the last 2 dimensions)"


@pytest.mark.parametrize(("filled", "words"), [(0.0, "zeros"), (np.nan, "NaN")])
def test_an_unwritten_tail(filled: float, words: str) -> None:
    values = RIGHT.copy()
    values.reshape(-1)[2390:] = filled
    asked = comparison(values, RIGHT, dtype="float32")
    assert confined(asked) == f"the tail: {words} from flat index 2,390 on (10 of 2,400 elements)"


def test_an_error_everywhere_is_not_confined() -> None:
    generator = np.random.default_rng(0)
    asked = comparison(RIGHT * (1 + 1e-3 * generator.standard_normal(RIGHT.shape)), RIGHT, dtype="float32")
    assert confined(asked) is None
    assert diagnosed(asked) == ""


def diagnosed(asked: Comparison) -> str:
    return diagnose(Auto(), asked, Auto().judge(asked))


def test_a_scale_in_float32_and_in_16_bit() -> None:
    assert diagnosed(comparison(RIGHT * 1.001, RIGHT, dtype="float32")).startswith("all times 1.001: ")
    wanted = normal(64, 32)
    found = diagnosed(comparison(wanted * 0.998, wanted, dtype="bfloat16"))
    assert found.startswith("all times 0.998: 0 / 0 instead of ")


def test_an_exact_output_says_where_it_differs() -> None:
    values = np.arange(100.0)
    asked = comparison(np.where(values == 7, 8, values), values, dtype="float32", api="Torch.relu")
    assert diagnosed(asked) == "wrong in 1 of 100 elements, at [7]"


def test_integers_have_no_cause() -> None:
    assert diagnosed(comparison([1, 2], [1, 3], dtype="int64")) == ""


def other(reference: AnyArray) -> Any:
    """Another reference, for whatever is assumed."""
    return lambda asked, assumption: replace(asked, expected=reference, evidence=Evidence())


def test_another_value_of_eps() -> None:
    seen: list[Assumption] = []

    def otherwise(asked: Comparison, assumption: Assumption) -> Comparison | None:
        seen.append(assumption)
        return other(RIGHT)(asked, assumption) if assumption.argument == ("eps", 1e-6) else None

    more: Any = {"api": "Functional.layer_norm", "args": (None, None, None, None, 1e-5), "alternative": otherwise}
    asked = comparison(RIGHT, RIGHT + 1e-3 * normal(*RIGHT.shape), dtype="float32", **more)
    assert diagnosed(asked).startswith("behaves as eps = 1e-06 instead of 1e-05: ")
    assert Assumption(argument=("eps", 1e-3)) in seen


def test_a_healthy_output_asks_for_no_other_reference() -> None:
    def otherwise(asked: Comparison, assumption: Assumption) -> Comparison | None:
        raise AssertionError("asked")

    asked = comparison(RIGHT, RIGHT, dtype="float32", alternative=otherwise)
    assert judged_with_modes(Auto(), asked, [MODES["tf32"]]).verdict == "pass"


def test_a_mode_passes_where_it_is_allowed_and_is_named_where_not() -> None:
    asked = comparison(RIGHT, RIGHT + 1e-3 * normal(*RIGHT.shape), dtype="float32", alternative=other(RIGHT))
    passed = judged_with_modes(Auto(), asked, [MODES["hf32"]])
    assert (passed.verdict, passed.metrics["mode"], passed.metrics["noise_ratio"]) == ("pass", "hf32", 0.0)
    failed = judged_with_modes(Auto(), asked, [])
    assert failed.verdict == "error"
    assert "behaves as " in failed.reason


def test_float64_has_no_modes() -> None:
    asked = comparison(RIGHT, RIGHT + 1e-3 * normal(*RIGHT.shape), dtype="float64", alternative=other(RIGHT))
    assert judged_with_modes(Auto(), asked, list(MODES.values())).verdict == "error"


def test_the_factor_and_its_error() -> None:
    assert list(fitted_factor(comparison(2 * RIGHT, RIGHT, dtype="float32"))) == pytest.approx(
        [2.0, 0.0], rel=0, abs=1e-12
    )
    assert fitted_factor(comparison([1.0], [1.0], dtype="float32")) == (1.0, np.inf)


@pytest.mark.parametrize(("value", "text"), [(17583.0, "17,600"), (12.84, "12.8"), (1.0, "1"), (0.0, "0")])
def test_numbers_are_short(value: float, text: str) -> None:
    assert short(value) == text
