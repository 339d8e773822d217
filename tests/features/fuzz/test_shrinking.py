"""A failing call made smaller with the numbers that it has."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_probe.features.fuzz.shrinking import cut_sizes
from pytest_probe.model.dump import Call, Surroundings, TensorSpec
from pytest_probe.model.run import Arguments, Leaf


def call(*shapes: tuple[int, ...]) -> tuple[Call, Arguments]:
    specs = tuple(TensorSpec("float32", shape) for shape in shapes)
    leaves = tuple(Leaf(np.arange(np.prod(shape), dtype=np.float32).reshape(shape)) for shape in shapes)
    return Call(specs, {}, None, (), surroundings=Surroundings()), Arguments(leaves, {}, ())


@pytest.mark.parametrize(
    ("shapes", "smallest"),
    [
        (((9,), (9, 9)), [(9,), (1, 9)]),  # the size that may shrink is equal to one that may not
        (((9,), (7, 9)), [(9,), (1, 9)]),
        (((4, 40), (40, 9)), [(1, 9), (9, 1)]),
    ],
)
def test_each_dimension_is_cut_as_far_as_the_call_fails(shapes: tuple[tuple[int, ...], ...], smallest: object) -> None:
    """A product, wrong from 9 terms on."""

    def fails(tried: Call, arguments: Arguments) -> bool:
        first, second = (leaf.array.shape for leaf in arguments.args)
        assert [spec.shape for spec in tried.args] == [first, second]
        terms = second[0] if len(first) > 1 else second[-1]
        return first[-1] == terms >= 9 and 0 not in (*first, *second)

    found = cut_sizes(*call(*shapes), fails)[1]
    assert [leaf.array.shape for leaf in found.args] == smallest


def test_a_size_that_cannot_be_cut_takes_few_of_the_tries() -> None:
    def fails(_: Call, arguments: Arguments) -> bool:
        shapes = [leaf.array.shape for leaf in arguments.args]
        return all(rows >= 1 and terms == 47 for rows, terms in shapes)

    found = cut_sizes(*call((19, 47), (128, 47)), fails)[1]
    assert [leaf.array.shape for leaf in found.args] == [(1, 47), (1, 47)]
