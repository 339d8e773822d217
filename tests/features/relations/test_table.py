"""What the table says of APIs, and which axes are rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_probe.errors import SettingsError
from pytest_probe.features.relations.table import Row, checked, row, row_axes
from pytest_probe.model.run import Leaf


def axes(dimensions: Any, *shape: int, **arguments: Any) -> tuple[int, ...]:
    return row_axes(dimensions, Leaf(np.zeros(shape)), arguments.get)


@pytest.mark.parametrize(
    ("dimensions", "shape", "arguments", "expected"),
    [
        (0, (4, 5), {}, (0,)),
        (-1, (4, 5), {}, (1,)),
        (":", (4, 5), {}, (0, 1)),
        (":-2", (2, 3, 4, 5), {}, (0, 1)),
        (":-2", (4, 5), {}, ()),
        (":-normalized_shape", (2, 3, 4), {"normalized_shape": [3, 4]}, (0,)),
        (":-normalized_shape", (2, 3, 4), {"normalized_shape": 4}, (0, 1)),
        ("~dim", (2, 3, 4), {"dim": 1}, (0, 2)),
        ("~dim", (2, 3, 4), {"dim": [-1, 0]}, (1,)),
    ],
)
def test_axes_that_are_rows(
    dimensions: Any, shape: tuple[int, ...], arguments: dict[str, Any], expected: tuple[int, ...]
) -> None:
    assert axes(dimensions, *shape, **arguments) == expected


def test_axes_that_are_not_there() -> None:
    with pytest.raises(LookupError, match="a tensor of 2 dimensions has no dimension 5"):
        axes(5, 4, 5)
    with pytest.raises(LookupError, match="the call names no dim, so that all of it is one row"):
        axes("~dim", 4, 5)


def test_non_deterministic_is_an_accelerator_alone() -> None:
    assert not row("index_add", "Torch.index_add", "cpu", {}).nondeterministic
    assert row("index_add", "Torch.index_add", "cuda:0", {}).nondeterministic


def test_a_users_row_stands_for_the_packaged_one() -> None:
    users = {"Functional.linear": {"batch": {"input": 0}, "alias": ["input", "weight"]}}
    assert row("linear", "Functional.linear", "cpu", users) == Row({"input": 0}, alias=("input", "weight"))
    assert row("my_kernel", "Mine.my_kernel", "cpu", users) == Row()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batches": {"x": 0}}, r"registry\.relations\['Mine\.f'\]: unknown key 'batches'; did you mean 'batch'\?"),
        ({"batch": {"x": "rows"}}, r"registry\.relations\['Mine\.f'\]: batch: .*; give by argument a dimension \(0\)"),
        ([], r"registry\.relations\['Mine\.f'\]"),
    ],
)
def test_a_users_row_that_cannot_be_read(given: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        checked({"Mine.f": given})
