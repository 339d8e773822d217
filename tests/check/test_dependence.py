"""How many values meet in one element, measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_probe.check.dependence import Dependence, _Plain
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

    def watched(self: Any, function: Any, arguments: Any, *others: Any) -> Any:
        seen.append(int(arguments.kwargs["lengths"].array.sum()))
        return run(self, function, arguments, *others)

    monkeypatch.setattr(type(made.reference.framework), "run", watched)
    assert Dependence(made, "forward").terms("output.0") is None
    assert set(seen) == {12}


def test_many_tensors_take_few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one norm of a list depends on is settled by the largest of the others."""
    sizes = [(30, 7), (50, 40), (9, 9), (45, 40), *((5, width) for width in range(2, 40))]
    made = replay("Torch._foreach_norm", [normal(*size, seed=place) for place, size in enumerate(sizes)])
    runs: list[None] = []
    run = type(made.reference.framework).run

    def watched(self: Any, *args: Any) -> Any:
        runs.append(None)
        return run(self, *args)

    monkeypatch.setattr(type(made.reference.framework), "run", watched)
    found = Dependence(made, "forward")
    assert {found.terms(f"output.{place}") for place in range(len(sizes)) if place != 1} == {2000}
    assert found.terms("output.1") == 2000
    assert len(runs) <= 5


def test_elements_that_are_others() -> None:
    inf, nan = np.inf, np.nan
    plain = np.array([1.0, 1.0, 0.0, 0.0, inf, inf, inf, nan, nan, 1.0, -inf])
    found = np.array([1.0 + 2.0**-40, 1.001, 2.0**-60, 0.1, inf, -inf, 1.0, nan, 1.0, nan, -inf])
    # Of inf nothing is told.
    expected = [False, True, False, True, False, False, False, False, True, True, False]
    for count in (1, 3000):  # one block, and several
        moved = _Plain.of(np.tile(plain, count)).moved(np.tile(found, count))
        assert moved.tolist() == expected * count
    assert _Plain.of(plain[:4]).moved(found[:4]).tolist() == expected[:4]
