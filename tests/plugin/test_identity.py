"""What users registered is told by its code and by what is bound to it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from pytest_probe.plugin.identity import of_functions


def scaled(factor: float, inner: Callable[[float], float] = abs) -> Callable[[float], float]:
    def reference(value: float) -> float:
        return inner(value) * factor

    return reference


def with_default(value: float, factor: float = 1.0) -> float:
    return value * factor


def calls_itself() -> Callable[[int], int]:
    def reference(value: int) -> int:
        return reference(value - 1) if value else 0

    return reference


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (scaled(1.0), scaled(1.01)),
        (scaled(1.0, scaled(1.0)), scaled(1.0, scaled(1.01))),
        (scaled(1.0), with_default),
        (functools.partial(with_default, factor=1.0), functools.partial(with_default, factor=1.01)),
        (functools.partial(scaled(1.0)), functools.partial(scaled(1.01))),
    ],
    ids=["closure", "closure of a closure", "source", "partial", "closure in a partial"],
)
def test_another_function_of_one_name_is_another(before: Any, now: Any) -> None:
    assert of_functions({"kernel": before}) != of_functions({"kernel": now})


@pytest.mark.parametrize(
    "make",
    [lambda: scaled(2.0, abs), calls_itself, lambda: functools.partial(with_default, factor=2.0), lambda: object()],
    ids=["closure", "recursive", "partial", "object"],
)
def test_the_same_made_again_is_the_same(make: Callable[[], Any]) -> None:
    assert of_functions({"kernel": make()}) == of_functions({"kernel": make()})
