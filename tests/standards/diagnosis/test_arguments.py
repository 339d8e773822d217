"""Which changed arguments are run, and what they explain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace

from pytest_probe.model.comparison import Evidence
from pytest_probe.numerics.dtypes import AnyArray, numpy_dtype, round_to
from pytest_probe.standards.auto import Auto
from pytest_probe.standards.diagnosis import diagnose
from tests.support.asking import comparison, normal

X, W, B = normal(24, 20), normal(40, 20), normal(40) * 3


class Runs(Evidence):
    """The reference on other arguments, and what it was asked for."""

    def __init__(self, function: Callable[..., AnyArray], *given: AnyArray) -> None:
        self._function = function
        self._given = {f"input.{index}": value for index, value in enumerate(given)}
        self.asked: list[Mapping[str, Any]] = []

    def with_arguments(self, values: Mapping[str, Any]) -> AnyArray | None:
        self.asked.append(values)
        try:
            return self._function(**{name.replace(".", ""): value for name, value in {**self._given, **values}.items()})
        except ValueError:
            return None


def linear(input0: AnyArray, input1: AnyArray, input2: AnyArray) -> AnyArray:
    return input0.astype(np.float64) @ input1.astype(np.float64).T + input2


def hypotenuse(input0: AnyArray, input1: AnyArray) -> AnyArray:
    return np.hypot(input0, input1)


def cause(
    api: str, function: Callable[..., AnyArray], given: tuple[AnyArray, ...], actual: AnyArray
) -> tuple[str, int]:
    """What the error looks like, and how many runs were made."""
    right = function(*given)
    evidence = Runs(function, *given)
    asked = replace(comparison(actual, right, dtype="float32", api=api, args=given), evidence=evidence)
    found = diagnose(Auto(), asked, Auto().judge(asked))
    assert found is not None
    return found.cause, len(evidence.asked)


def cut(values: AnyArray, bits: int) -> AnyArray:
    mask = np.uint32(2**32 - (1 << (24 - bits)))
    return (values.astype(np.float32).view(np.uint32) & mask).view(np.float32)


def test_cut_operands_are_found_among_many_widths() -> None:
    x, w, b = (np.abs(value).astype(np.float32) for value in (X, W, B))
    for bits in (8, 11, 15):
        actual = linear(cut(x, bits), cut(w, bits), cut(b, bits))
        words, _ = cause("Functional.linear", linear, (x, w, b), actual)
        assert words == f"as with input, weight, bias cut to {bits} bits"


def test_widths_that_move_too_little_are_not_run() -> None:
    x, w, b = (value.astype(np.float32) for value in (X, W, B))
    near = linear(x, w, b) + 1e-4 * normal(24, 40)
    far = linear(x, w, b) + 3 * normal(24, 40)
    _, runs = cause("Functional.linear", linear, (x, w, b), near)
    _, fewer = cause("Functional.linear", linear, (x, w, b), far)
    assert fewer < runs - 16


def test_a_factor_is_not_looked_for_among_tensors() -> None:
    words, runs = cause("Functional.linear", linear, (X, W, B), linear(X, W, B) * 1.001)
    assert words == "all times 1.001"
    _, all_of_them = cause("Functional.linear", linear, (X, W, B), linear(X, W, B) + 1e-3 * normal(24, 40))
    assert runs < all_of_them / 3


def test_what_works_element_by_element_depends_on_like_elements() -> None:
    short = X.copy()
    short[5:, -4:] = 0
    words, runs = cause("Torch.hypot", hypotenuse, (X, X[::-1] * 3), hypotenuse(short, X[::-1] * 3))
    assert words == "as with zeros for input"
    everywhere = hypotenuse(X, X[::-1] * 3) + normal(24, 20)
    _, others = cause("Torch.hypot", hypotenuse, (X, X[::-1] * 3), everywhere)
    _, unknown = cause("Torch.nobody", hypotenuse, (X, X[::-1] * 3), everywhere)
    assert runs < others < unknown / 2


PLACES, TABLE = np.random.default_rng(0).permutation(np.arange(24) % 6), normal(6, 20)


def added(input0: AnyArray, input1: AnyArray) -> AnyArray:
    """Rows of the second argument, added to a table's at the indices that the first has."""
    if input0.max() > 5:
        raise ValueError("index out of range")
    total = np.array(TABLE)
    np.add.at(total, input0, input1.astype(np.float64))
    return total


def test_terms_at_one_index_that_overwrite_one_another() -> None:
    places = {int(place): row for row, place in enumerate(PLACES)}
    last = TABLE + X[[places[place] for place in range(6)]]
    found, _ = cause("Torch.no_such", added, (PLACES, X), last)
    assert found == "as with the last of equal input alone: the others of input.1 are overwritten"
    first = TABLE + X[np.unique(PLACES, return_index=True)[1]]
    assert "overwritten" not in cause("Torch.no_such", added, (PLACES, X), first)[0]


def test_an_index_one_too_high_begins_again() -> None:
    found, _ = cause("Torch.no_such", added, (PLACES, X), added((PLACES + 1) % 6, X))
    assert found == "as with input + 1, and 0 for the largest"


def test_an_incoming_gradient_is_an_argument() -> None:
    gradient, weight = normal(24, 40), normal(40, 20)

    def product(input0: AnyArray, input1: AnyArray, incomingoutput0: AnyArray = gradient) -> AnyArray:
        return incomingoutput0.astype(np.float64) @ input1.astype(np.float64)

    rounded = round_to(gradient, numpy_dtype("float8_e5m2")).astype(np.float32)
    asked = comparison(product(X, weight, rounded), product(X, weight), dtype="float32", args=(X, weight))
    case = replace(asked.case, direction="backward", incoming={"output.0": gradient})
    asked = replace(asked, case=case, evidence=Runs(product, X, weight))
    found = diagnose(Auto(), asked, Auto().judge(asked))
    assert found is not None
    assert found.cause == "as with the gradient of output.0 rounded to float8_e5m2"
