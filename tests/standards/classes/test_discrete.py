from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_probe.numerics.dtypes import numpy_dtype
from pytest_probe.standards.classes.discrete import Discrete
from tests.support.asking import comparison


def test_the_references_step_passes() -> None:
    found = Discrete().judge(comparison([2.0, -3.0], [2.0, -3.0], api="Torch.floor", dtype="float32"))
    assert found.verdict == "pass"


def test_another_step_is_an_error_though_it_is_noise_to_the_noise_rule() -> None:
    asked = comparison(
        [3.0, 5.0], [2.0, 5.0], api="Torch.floor", dtype="float32", runs={"perturbed_more": [[2.0, 5.0]] * 4}
    )
    found = Discrete().judge(asked)
    assert found.verdict == "error"
    assert found.reason == "1 of 2 elements are on another step, and are not within 4 roundoffs of its edge"
    assert [element.index for element in found.worst] == [(0,)]


def test_the_neighbouring_step_passes_on_its_edge() -> None:
    asked = comparison(
        [1.0, 5.0], [2.0, 5.0], api="Torch.floor", dtype="float32", runs={"perturbed_more": [[2, 5], [1, 5]]}
    )
    assert Discrete().judge(asked).verdict == "pass"


def test_beyond_the_neighbouring_step_is_an_error() -> None:
    asked = comparison(
        [0.0, 5.0], [2.0, 5.0], api="Torch.floor", dtype="float32", runs={"perturbed_more": [[2, 5], [1, 5]]}
    )
    assert Discrete().judge(asked).verdict == "error"


def test_counts_are_steps_too() -> None:
    runs = {"perturbed_more": [[3.0, 4.0], [4.0, 3.0]]}
    asked = comparison(np.array([4, 3]), np.array([3, 4]), api="Torch.bincount", runs=runs)
    assert Discrete().judge(asked).verdict == "pass"
    asked = comparison(np.array([5, 2]), np.array([3, 4]), api="Torch.bincount", runs=runs)
    assert Discrete().judge(asked).verdict == "error"


def test_nan_is_no_step() -> None:
    asked = comparison([np.nan], [2.0], api="Torch.floor", dtype="float32", runs={"perturbed_more": [[2.0]]})
    assert Discrete().judge(asked).verdict == "error"


@pytest.mark.parametrize(("ulps", "verdict"), [(1, "pass"), (2, "pass"), (40, "error"), (-1, "pass")])
def test_a_step_that_is_no_number_of_the_dtype_may_be_missed_by_rounding(ulps: int, verdict: str) -> None:
    near = np.float32(-1.234) + ulps * np.spacing(np.float32(1.0))
    asked = comparison(
        [near, 2.0], [-1.234, 2.0], api="Torch.round", dtype="float32", runs={"perturbed_more": [[-1.234, 2.0]]}
    )
    assert Discrete().judge(asked).verdict == verdict


def test_the_step_that_16_bit_arithmetic_leads_to_passes() -> None:
    runs = {"perturbed_more": [[3.0, 4.0]] * 4, "narrow_steps": [[4.0, 3.0]]}
    asked: dict[str, Any] = {"api": "Torch.histc", "dtype": "bfloat16", "runs": runs}
    assert Discrete().judge(comparison([4.0, 3.0], [3.0, 4.0], **asked)).verdict == "pass"
    assert Discrete().judge(comparison([5.0, 2.0], [3.0, 4.0], **asked)).verdict == "error"


@pytest.mark.parametrize(("actual", "words"), [([3.0, 3.0], "6 elements"), ([3.0, 5.0], "8 elements")])
def test_no_rounding_decides_how_many_elements_lie_in_the_range(actual: list[float], words: str) -> None:
    """The upper end that is left out, and an outlier that is counted: each bin could have another number."""
    runs = {"perturbed_more": [[3.0, 3.0], [3.0, 5.0], [4.0, 3.0]]}
    asked = comparison(actual, [3.0, 4.0], api="Torch.histc", dtype="float32", runs=runs)
    found = Discrete().judge(asked)
    assert found.verdict == "error"
    assert found.reason == f"{words} are counted, but 7 lie in the range"
    assert Discrete().judge(comparison([4.0, 3.0], [3.0, 4.0], api="Torch.histc", runs=runs)).verdict == "pass"


@pytest.mark.parametrize(
    ("counts", "verdict"), [([3, 4], "warning"), ([3, 3], "error")], ids=["another bin", "a lost element"]
)
def test_an_own_kernel_may_count_in_another_bin_and_loses_nothing(counts: list[int], verdict: str) -> None:
    actual = np.array(counts, np.float16)
    asked: dict[str, Any] = {"api": "Torch.histc", "runs": {"perturbed_more": [[4.0, 3.0]] * 4}}
    assert Discrete().judge(comparison(actual, [5.0, 2.0], own_result=actual, **asked)).verdict == verdict
    assert Discrete().judge(comparison(actual, [5.0, 2.0], **asked)).verdict == "error"


def test_no_own_kernel_counts_beyond_the_next_bin() -> None:
    for counts, verdict in (([4, 3, 2], "warning"), ([1, 2, 6], "error")):
        actual = np.array(counts, np.float16)
        asked: dict[str, Any] = {"api": "Torch.histc", "runs": {"perturbed_more": [[6.0, 2.0, 1.0]] * 4}}
        assert Discrete().judge(comparison(actual, [6.0, 2.0, 1.0], own_result=actual, **asked)).verdict == verdict


@pytest.mark.parametrize(
    ("counts", "verdict"),
    [
        ([256, 2, 1], "warning"),
        ([256, 3, 0], "warning"),
        ([0, 0, 0], "error"),
        ([-5, 99968, 3], "error"),
        ([256, 2, 9], "error"),
    ],
)
def test_a_full_bin_of_an_own_kernel_excuses_no_other(counts: list[int], verdict: str) -> None:
    actual = np.array(counts, numpy_dtype("bfloat16"))
    asked: dict[str, Any] = {"api": "Torch.histc", "runs": {"perturbed_more": [[300.0, 2.0, 1.0]] * 4}}
    assert Discrete().judge(comparison(actual, [300.0, 2.0, 1.0], own_result=actual, **asked)).verdict == verdict
