from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.standards.classes.selected_indices import SelectionStandard
from tests.support.asking import comparison

VALUES = np.array([[3.0, 1.0, 3.0, 2.0], [0.0, 0.0, 5.0, 5.0]], np.float32)


def indices(api: str, actual: Any, expected: Any, *args: Any, values: Any = VALUES, **more: Any) -> OutputVerdict:
    name = "output.0" if ".arg" in api else "output.1"
    asked = comparison(np.array(actual), np.array(expected), api=api, name=name, args=(values, *args), **more)
    return SelectionStandard().judge(asked)


@pytest.mark.parametrize(
    ("api", "actual", "expected", "args"),
    [
        ("Torch.sort", [[1, 3, 2, 0], [0, 1, 2, 3]], [[1, 3, 0, 2], [0, 1, 2, 3]], (-1,)),
        ("Torch.argsort", [[1, 3, 2, 0], [1, 0, 3, 2]], [[1, 3, 0, 2], [0, 1, 2, 3]], ()),
        ("Torch.topk", [[2, 0], [3, 2]], [[0, 2], [2, 3]], (2,)),
        ("Torch.median", [3, 1], [3, 0], (-1,)),
        ("Torch.kthvalue", [3, 1], [3, 0], (2,)),
        ("Torch.cummax", [[0, 0, 0, 0], [0, 0, 2, 2]], [[0, 0, 2, 2], [1, 1, 2, 3]], (1,)),
        ("Torch.max", [0, 0, 1, 1], [0, 0, 1, 1], (0,)),
    ],
)
def test_another_of_equal_values_passes(api: str, actual: Any, expected: Any, args: tuple[Any, ...]) -> None:
    assert indices(api, actual, expected, *args).verdict == "pass"


@pytest.mark.parametrize(
    ("api", "actual", "expected", "args"),
    [
        ("Torch.max", [2, 3], [0, 2], (1,)),
        ("Torch.argmax", [2, 3], [0, 2], (1,)),
        ("Torch.argmax", 7, 6, ()),
        ("Torch.argmin", [1, 1], [1, 0], (1,)),
    ],
)
def test_another_than_the_first_of_equal_values_is_said(
    api: str, actual: Any, expected: Any, args: tuple[Any, ...]
) -> None:
    found = indices(api, actual, expected, *args)
    assert (found.verdict, found.reason) == ("pass", "indices of equal values that are not the first")


@pytest.mark.parametrize(
    ("api", "actual", "expected", "args", "reason"),
    [
        ("Torch.max", [3, 2], [0, 2], (1,), "1 of 2 indices point at another value than the reference's"),
        ("Torch.argmax", 0, 6, (), "1 of 1 indices point at another value than the reference's"),
        ("Torch.sort", [[1, 3, 0, 0], [0, 1, 2, 3]], [[1, 3, 0, 2], [0, 1, 2, 3]], (-1,), "an index occurs twice"),
        ("Torch.topk", [[0, 0], [2, 3]], [[0, 2], [2, 3]], (2,), "an index occurs twice"),
        ("Torch.max", [4, 2], [0, 2], (1,), "indices from 2 to 4 expected 0 to 3"),
        ("Torch.max", [-2, 2], [0, 2], (1,), "indices from -2 to 2 expected 0 to 3"),
    ],
)
def test_wrong_indices(api: str, actual: Any, expected: Any, args: tuple[Any, ...], reason: str) -> None:
    found = indices(api, actual, expected, *args)
    assert (found.verdict, found.reason) == ("error", reason)


def test_the_dimension_may_be_named_as_numpy_does() -> None:
    assert indices("Torch.argmax", [0, 2], [0, 2], kwargs={"axis": 1}).verdict == "pass"
    assert indices("Torch.argmax", [2, 3], [0, 2], kwargs={"axis": 1}).reason.endswith("not the first")
    assert indices("Torch.argmax", [1, 3], [0, 2], kwargs={"axis": 1}).verdict == "error"


def test_a_kept_dimension_and_nan() -> None:
    values = np.array([[np.nan, 1.0, np.nan]], np.float32)
    assert indices("Torch.median", [[2]], [[0]], 1, True, values=values).verdict == "pass"
    assert indices("Torch.max", [[2]], [[0]], 1, True, values=values).reason.endswith("not the first")
    assert indices("Torch.max", [[1]], [[0]], 1, True, values=values).verdict == "error"


def test_a_stable_sort_has_one_answer() -> None:
    asked = ([[1, 3, 2, 0], [0, 1, 2, 3]], [[1, 3, 0, 2], [0, 1, 2, 3]])
    assert indices("Torch.sort", *asked, kwargs={"stable": True}).verdict == "error"


def test_values_are_exact() -> None:
    wanted = np.array([1.0, 2.0, 3.0])
    assert SelectionStandard().judge(comparison(wanted, wanted, api="Torch.sort", dtype="float32")).verdict == "pass"
    wrong = wanted * (1 + 2.0**-22)
    assert SelectionStandard().judge(comparison(wrong, wanted, api="Torch.sort", dtype="float32")).verdict == "error"


def test_an_unsorted_topk_may_come_in_any_order() -> None:
    row = np.array([4.0, 9.0, 7.0], np.float32)
    more: dict[str, Any] = {"api": "Torch.topk", "kwargs": {"sorted": False}}

    def judge(actual: Any, expected: Any, name: str) -> str:
        return SelectionStandard().judge(comparison(actual, expected, name=name, args=(row, 2), **more)).verdict

    assert judge(np.array([7.0, 9.0], np.float32), [9.0, 7.0], "output.0") == "pass"
    assert judge(np.array([4.0, 9.0], np.float32), [9.0, 7.0], "output.0") == "error"
    assert judge(np.array([2, 1]), np.array([1, 2]), "output.1") == "pass"
    assert judge(np.array([0, 1]), np.array([1, 2]), "output.1") == "error"
    asked = comparison(np.array([7.0, 9.0], np.float32), [9.0, 7.0], api="Torch.topk", args=(row, 2))
    assert SelectionStandard().judge(asked).verdict == "error"


def test_a_scalar_has_one_index() -> None:
    assert indices("Torch.argmax", 0, 0, values=np.float32(3)).verdict == "pass"
    assert indices("Torch.sort", 1, 0, values=np.asarray(np.float32(3))).verdict == "error"
