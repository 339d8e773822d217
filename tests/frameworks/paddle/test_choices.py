from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from pytest_probe.check import Checker, RunRequest
from pytest_probe.frameworks.paddle import references
from pytest_probe.model.comparison import Choice
from pytest_probe.registry import Registry

X = np.array([[0.0, 3.0, 1.0, 3.0], [2.0, 2.0, 0.0, 1.0]], np.float32)


@pytest.mark.parametrize(
    ("function", "dim", "indices"),
    [
        (lambda x: paddle.topk(x, 1, axis=0), 0, [[1, 0, 0, 0]]),
        (lambda x: paddle.argsort(x, axis=0), 0, [[0, 1, 1, 1], [1, 0, 0, 0]]),
        (lambda x: x.argmax(), None, 1),
        (lambda x: x.argmin(axis=1), 1, [0, 2]),
        (lambda x: paddle.kthvalue(x, 1, axis=1), 1, [0, 2]),
        (lambda x: paddle.sort(x, axis=1), 1, [[0, 2, 1, 3], [2, 3, 0, 1]]),
    ],
)
def test_choices_are_noted(function: Callable[[Any], Any], dim: int | None, indices: Any) -> None:
    noted: list[Choice] = []
    references.noting(function, noted)(paddle.to_tensor(X))
    [choice] = noted
    assert choice.dim == dim
    np.testing.assert_array_equal(choice.values, X)
    np.testing.assert_array_equal(choice.indices, indices)


def test_afterwards_nothing_is_noted() -> None:
    noted: list[Choice] = []
    references.noting(paddle.argsort, noted)(paddle.to_tensor(X))
    paddle.argsort(paddle.to_tensor(X))
    assert len(noted) == 1


def last_first(x: Any) -> Any:
    order = paddle.argsort(x.flip([-1]), descending=True, stable=True)[:, :2]
    return x.shape[-1] - 1 - order


@pytest.mark.parametrize(("offset", "expected"), [(0, "pass"), (1, "error")])
def test_an_index_of_an_equal_element_is_right(offset: int, expected: str) -> None:
    checker = Checker(RunRequest(device="cpu"), Registry.default(), framework="paddle")
    [verdict] = checker.compare(
        lambda x: (last_first(x) + offset) % 4,
        lambda x: paddle.topk(x, 2)[1],
        [paddle.to_tensor(X.repeat(8, 0))],
        key="choice",
    )
    assert verdict.verdict == expected
