from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_probe.model.run import (
    Arguments,
    BoundCall,
    with_value,
)

X, Y = np.zeros(2), np.ones(3)


def call(**given: Any) -> BoundCall:
    """A call of parameters that stand in their order, with a default for eps."""
    paths = {name: f"input.{place}" for place, name in enumerate(given)}
    return BoundCall("Torch.x", "x", False, True, given, paths, {"eps": 1e-5})


def test_arguments_are_bound_once_for_each_api() -> None:
    asked: list[str] = []

    def bind(api: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> BoundCall:
        asked.append(api)
        return BoundCall(api, api, False, True, {"input": args[0], **kwargs}, {}, {})

    arguments = Arguments((3,), {"dim": 1}, None)
    first = arguments.bound("softmax", bind)
    assert first.given == {"input": 3, "dim": 1}
    assert arguments.bound("softmax", bind) is first
    assert arguments.bound("sum", bind).api == "sum"
    assert asked == ["softmax", "sum"]
    # Other arguments are bound anew.
    assert with_value(arguments, "kwargs.dim", 0).bound("softmax", bind).given == {"input": 3, "dim": 0}


@pytest.mark.parametrize(
    ("path", "args", "kwargs"),
    [
        ("input.0", (9, 2, 3), {"eps": 4}),
        ("input.2", (1, 2, 9), {"eps": 4}),
        ("input.3", (1, 2, 3, 9), {"eps": 4}),
        ("kwargs.eps", (1, 2, 3), {"eps": 9}),
        ("kwargs.p", (1, 2, 3), {"eps": 4, "p": 9}),
    ],
)
def test_with_value(path: str, args: tuple[int, ...], kwargs: dict[str, int]) -> None:
    before = Arguments((1, 2, 3), {"eps": 4}, (None,))
    assert with_value(before, path, 9) == Arguments(args, kwargs, (None,))
    assert before == Arguments((1, 2, 3), {"eps": 4}, (None,))


def test_an_argument_is_as_given_else_its_default() -> None:
    made = call(input=X, weight=None)
    assert made.argument("input") is X
    assert (made.argument("weight"), made.argument("eps"), made.argument("bias")) == (None, 1e-5, None)
    assert call(eps=None).argument("eps") is None
