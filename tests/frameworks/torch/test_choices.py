from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_probe.frameworks.torch import references

X = torch.tensor([[2.0, 5.0, 5.0, 1.0], [0.0, 0.0, 0.0, 0.0]])


@pytest.mark.parametrize(
    ("function", "last"),
    [
        (lambda x: x.argmax(-1), [2, 3]),
        (lambda x: x.argmin(1, keepdim=True), [[3], [3]]),
        (lambda x: x.argmax(), 2),
        (lambda x: x.max(1).indices, [2, 3]),
        (lambda x: x.sort(stable=True, dim=1).indices, [[3, 0, 1, 2], [0, 1, 2, 3]]),
        (lambda x: x.cummax(1).indices, [[0, 1, 2, 2], [0, 1, 2, 3]]),
        (lambda x: x.sum().argmax(), 0),
    ],
)
def test_a_choice_falls_on_the_last_of_equal_elements_but_where_their_order_is_promised(
    function: Callable[[Any], Any], last: Any
) -> None:
    assert references.choosing_otherwise(function, 0)(X).tolist() == last


def test_other_runs_choose_any_of_equal_elements_and_no_other() -> None:
    found = {tuple(references.choosing_otherwise(lambda x: x.argmax(-1), seed)(X).tolist()) for seed in range(1, 65)}
    assert {first for first, _ in found} == {1, 2}
    assert {second for _, second in found} == {0, 1, 2, 3}


def test_the_gradient_goes_where_the_choice_falls() -> None:
    x = X.clone().requires_grad_()
    references.choosing_otherwise(lambda x: x.max(1).values, 0)(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[0, 0, 1, 0], [0, 0, 0, 1]]
