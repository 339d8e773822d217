from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_probe.numerics.dtypes import numpy_dtype
from pytest_probe.standards.classes.discrete import Discrete
from tests.support.asking import comparison

FLOOR: dict[str, Any] = {"api": "Torch.floor", "dtype": "float32"}
STILL, EDGE = {"perturbed_more": [[2.0, 5.0]] * 4}, {"perturbed_more": [[2, 5], [1, 5]]}
COUNTED = {"api": "Torch.bincount", "runs": {"perturbed_more": [[3.0, 4.0], [4.0, 3.0]]}}
BFLOAT16 = {
    "api": "Torch.histc", "dtype": "bfloat16",
    "runs": {"perturbed_more": [[3.0, 4.0]] * 4, "narrow_steps": [[4.0, 3.0]]},
}  # fmt: skip
ROUNDED = {"api": "Torch.round", "dtype": "float32", "runs": {"perturbed_more": [[-1.234, 2.0]]}}
# Bins that several runs count otherwise: each could have another number.
RANGE: dict[str, Any] = {
    "api": "Torch.histc",
    "dtype": "float32",
    "runs": {"perturbed_more": [[3.0, 3.0], [3.0, 5.0], [4.0, 3.0]]},
}


def near(ulps: int) -> list[float]:
    return [float(np.float32(-1.234) + ulps * np.spacing(np.float32(1.0))), 2.0]


@pytest.mark.parametrize(
    ("actual", "expected", "asked", "verdict"),
    [
        ([2.0, -3.0], [2.0, -3.0], FLOOR, "pass"),
        ([1.0, 5.0], [2.0, 5.0], {**FLOOR, "runs": EDGE}, "pass"),
        ([0.0, 5.0], [2.0, 5.0], {**FLOOR, "runs": EDGE}, "error"),
        ([np.nan], [2.0], {**FLOOR, "runs": {"perturbed_more": [[2.0]]}}, "error"),
        (np.array([4, 3]), np.array([3, 4]), COUNTED, "pass"),
        (np.array([5, 2]), np.array([3, 4]), COUNTED, "error"),
        ([4.0, 3.0], [3.0, 4.0], BFLOAT16, "pass"),
        ([5.0, 2.0], [3.0, 4.0], BFLOAT16, "error"),
        ([4.0, 3.0], [3.0, 4.0], RANGE, "pass"),
        *((near(ulps), [-1.234, 2.0], ROUNDED, "error" if ulps == 40 else "pass") for ulps in (1, 2, -1, 40)),
    ],
)
def test_the_neighbouring_step_passes_on_its_edge_and_no_other(
    actual: Any, expected: Any, asked: dict[str, Any], verdict: str
) -> None:
    assert Discrete().judge(comparison(actual, expected, **asked)).verdict == verdict


def test_another_step_is_an_error_though_it_is_noise_to_the_noise_rule() -> None:
    found = Discrete().judge(comparison([3.0, 5.0], [2.0, 5.0], **FLOOR, runs=STILL))
    assert found.verdict == "error"
    assert found.reason == "1 of 2 elements are on another step, and are not within 4 roundoffs of its edge"
    assert [element.index for element in found.worst] == [(0,)]


@pytest.mark.parametrize(
    ("runs", "verdict"),
    [
        ({**EDGE, "perturbed_less": [[2, 5], [1, 5]]}, "warning"),
        ({**EDGE, "perturbed_less": [[2, 5], [2, 5]]}, "pass"),
        ({**EDGE, "perturbed_less": [[2, 5], [1, 5]], "rounded_by_chance": [[1, 5]]}, "pass"),
    ],
)
def test_another_step_is_a_warning_where_the_arguments_lie_exactly_on_its_edge_and_no_rounding_leads_across(
    runs: dict[str, Any], verdict: str
) -> None:
    found = Discrete().judge(comparison([1.0, 5.0], [2.0, 5.0], **FLOOR, runs=runs))
    assert found.verdict == verdict
    assert [element.index for element in found.worst] == [(0,)] * (verdict == "warning")


@pytest.mark.parametrize(("actual", "words"), [([3.0, 3.0], "6 elements"), ([3.0, 5.0], "8 elements")])
def test_no_rounding_decides_how_many_elements_lie_in_the_range(actual: list[float], words: str) -> None:
    """The upper end that is left out, and an outlier that is counted."""
    found = Discrete().judge(comparison(actual, [3.0, 4.0], **RANGE))
    assert (found.verdict, found.reason) == ("error", f"{words} are counted, but 7 lie in the range")


@pytest.mark.parametrize(
    ("dtype", "counts", "expected", "moved", "verdict"),
    [
        ("float16", [3, 4], [5.0, 2.0], [4.0, 3.0], "warning"),  # in another bin
        ("float16", [3, 3], [5.0, 2.0], [4.0, 3.0], "error"),  # a lost element
        ("float16", [4, 3, 2], [6.0, 2.0, 1.0], [6.0, 2.0, 1.0], "warning"),
        ("float16", [1, 2, 6], [6.0, 2.0, 1.0], [6.0, 2.0, 1.0], "error"),  # beyond the next bin
        # A bin that is full in 16 bit excuses no other.
        ("bfloat16", [256, 2, 1], [300.0, 2.0, 1.0], [300.0, 2.0, 1.0], "warning"),
        ("bfloat16", [256, 3, 0], [300.0, 2.0, 1.0], [300.0, 2.0, 1.0], "warning"),
        ("bfloat16", [0, 0, 0], [300.0, 2.0, 1.0], [300.0, 2.0, 1.0], "error"),
        ("bfloat16", [-5, 99968, 3], [300.0, 2.0, 1.0], [300.0, 2.0, 1.0], "error"),
        ("bfloat16", [256, 2, 9], [300.0, 2.0, 1.0], [300.0, 2.0, 1.0], "error"),
    ],
)
def test_an_own_kernel_may_count_in_the_next_bin_and_loses_nothing(
    dtype: str, counts: list[int], expected: list[float], moved: list[float], verdict: str
) -> None:
    actual = np.array(counts, numpy_dtype(dtype))
    asked: dict[str, Any] = {"api": "Torch.histc", "runs": {"perturbed_more": [moved] * 4}}
    assert Discrete().judge(comparison(actual, expected, own_result=actual, **asked)).verdict == verdict
    assert Discrete().judge(comparison(actual, expected, **asked)).verdict == "error"
