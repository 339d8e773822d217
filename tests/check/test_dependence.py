"""How many values meet in one element, measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_probe.check.dependence import Dependence, exchanged
from tests.support.replaying import leaf, normal, replay

ROWS, WIDTH = 40, 300
X = normal(ROWS, WIDTH)
SPARSE = leaf(np.eye(ROWS, WIDTH))


def terms(name: str, *args: Any, **kwargs: Any) -> int | None:
    return Dependence(replay(name, *args, **kwargs), "forward").terms("output.0")


@pytest.mark.parametrize(
    ("name", "args", "wanted"),
    [
        ("Torch.exp", (X,), 1),
        ("Torch.mul", (X, normal(WIDTH, seed=1)), 1),
        ("Functional.relu", (X,), 1),
        ("Torch.where", (leaf(X.array > 0, "bool"), X, normal(ROWS, 1, seed=1)), 1),
        ("Functional.softmax", (X, -1), WIDTH),
        ("Torch.mean", (X, 0), ROWS),
        ("Torch.sum", (X,), ROWS * WIDTH),
        ("Torch.matmul", (X, normal(WIDTH, 50, seed=1)), WIDTH),
    ],
)
def test_as_many_as_the_call_adds_up(name: str, args: tuple[Any, ...], wanted: int) -> None:
    assert terms(name, *args) == wanted


def test_a_window_is_about_its_own_size() -> None:
    found = terms("Functional.conv2d", normal(8, 3, 40, 40), normal(4, 3, 3, 3, seed=1))
    assert found is not None
    assert 18 <= found <= 48


@pytest.mark.parametrize(("name", "args"), [("Torch.cumsum", (SPARSE, -1)), ("Torch.cummax", (SPARSE, -1))])
def test_a_sum_of_zeros_is_no_function_of_one_element(name: str, args: tuple[Any, ...]) -> None:
    assert terms(name, *args) != 1


def test_nothing_is_told_where_the_call_refuses_other_values() -> None:
    definite = leaf(np.eye(9) + 0.9)
    assert terms("Torch.exp", definite) == 1
    assert terms("Torch.cholesky", definite) is None


def test_no_kernel_runs_on_exchanged_values_that_it_would_not_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths that add up to more than there are rows: the kernel reads beyond the memory, and may never end."""
    lengths = leaf(np.array([4, 6, 2]), "int64")
    made = replay("Torch.segment_reduce", normal(12), "sum", lengths=lengths)
    seen: list[int] = []
    run = type(made.reference.framework).run

    def watched(self: Any, function: Any, args: Any, kwargs: Any, *others: Any) -> Any:
        seen.append(int(kwargs["lengths"].array.sum()))
        return run(self, function, args, kwargs, *others)

    monkeypatch.setattr(type(made.reference.framework), "run", watched)
    assert Dependence(made, "forward").terms("output.0") is None
    assert set(seen) == {12}


def test_chosen_indices_take_what_follows_and_floats_are_smaller() -> None:
    chosen = np.array([True, False, True])
    assert exchanged(np.array([4.0, 8.0, 16.0]), 0, chosen).tolist() == [6.0, 8.0, 3.0]
    assert exchanged(np.array([[1, 2, 3]]), 1, chosen).tolist() == [[2, 2, 1]]
