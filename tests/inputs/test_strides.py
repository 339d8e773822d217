"""Recorded layouts, and tensors that are the same."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from pytest_probe.errors import Unsupported
from pytest_probe.inputs.memory import check_size, is_layout, memory_needed, without_repeats
from pytest_probe.model.dump import Call, TensorSpec
from tests.inputs.conftest import Build

X = TensorSpec("float32", (3, 4), 2.5, -2.25, 0.05, 4.0, stride=(1, 3), address=64)


@pytest.mark.parametrize(
    ("shape", "stride", "layout"),
    [
        ((3, 4), None, False),
        ((3, 4), (1, 3), True),
        ((3, 4), (8, 2), True),
        ((3, 4), (0, 1), True),
        ((3, 4), (1, 1), False),
        ((3, 4), (2, 1), False),
        ((1, 4), (1, 1), True),
        ((0, 4), (1, 1), False),
        ((2, 3, 4), (1, 2, 2), False),
    ],
)
def test_elements_of_their_own_can_be_laid_out(
    shape: tuple[int, ...], stride: tuple[int, ...] | None, layout: bool
) -> None:
    assert is_layout(TensorSpec("float32", shape, stride=stride)) is layout


def test_recorded_strides_lay_the_argument_out(arguments: Build) -> None:
    overlapping = TensorSpec("float32", (3, 4), stride=(1, 1))
    made = arguments(X, overlapping)
    assert [leaf.strides for leaf in made.args] == [(1, 3), None]


def test_an_expanded_tensor_repeats_its_elements(arguments: Build) -> None:
    spec = TensorSpec("float32", (3, 4), 2.0, -2.0, 0.0, 6.0, stride=(0, 1))
    once = without_repeats(spec)
    assert (once.shape, once.stride) == ((1, 4), None)
    assert once.norm == pytest.approx(6.0 / 3**0.5)
    [leaf] = arguments(spec).args
    assert (leaf.array == leaf.array[:1]).all()
    assert (leaf.array.max(), leaf.array.min()) == (2.0, -2.0)
    assert leaf.array.flags.writeable


def test_what_is_expanded_counts_once() -> None:
    mask = TensorSpec("bool", (5, 4), True, False, stride=(0, 1), true=15)
    assert without_repeats(mask).true == 3


def test_a_tensor_that_was_passed_twice_is_one(arguments: Build) -> None:
    made = arguments(X, replace(X, requires_grad=True), kwargs={"other": X})
    assert made.args[1].array is made.args[0].array
    assert made.kwargs["other"].array is made.args[0].array
    assert [leaf.requires_grad for leaf in made.args] == [False, True]


@pytest.mark.parametrize(
    "other",
    [
        replace(X, address=128),
        replace(X, dtype="float16"),
        replace(X, stride=None),
        replace(X, shape=(4, 3)),
        replace(X, address=None),
    ],
)
def test_other_views_stay_as_they_are(arguments: Build, other: TensorSpec) -> None:
    first, second = arguments(X, other).args
    assert not np.array_equal(first.array.reshape(-1), second.array.astype(np.float32).reshape(-1))


def test_the_one_with_a_role_decides(arguments: Build) -> None:
    """cholesky_solve's second argument is a factor to solve with."""
    square = TensorSpec("float32", (4, 4), 1.0, -1.0, 0.0, 2.0, address=64)
    made = arguments(square, square, api="Torch.cholesky_solve", record="Torch.cholesky_solve.0")
    alone = arguments(replace(square, address=1), square, api="Torch.cholesky_solve", record="Torch.cholesky_solve.0")
    assert np.array_equal(made.args[0].array, alone.args[1].array)


def test_memory_is_that_of_the_layout() -> None:
    sparse = TensorSpec("float32", (2, 2), stride=(2**40, 1))
    call = Call((sparse,), {}, None, None)
    assert memory_needed(call, None) > 2**40
    with pytest.raises(
        Unsupported, match=r"input_args.0: found float32 of shape \[2, 2\] and stride \[1099511627776, 1\]"
    ):
        check_size(call, None, 1 << 30)
