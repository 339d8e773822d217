"""How a call's tensors lie, which are the same, and what memory they take."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from pytest_probe.errors import Unsupported
from pytest_probe.inputs import arguments_on_device, available_memory, bytes_on_device, check_size, memory_needed
from pytest_probe.inputs.memory import is_layout, without_repeats
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
    assert without_repeats(TensorSpec("bool", (5, 4), True, False, stride=(0, 1), true=15)).true == 3
    assert (once.shape, once.stride) == ((1, 4), None)
    assert once.norm == pytest.approx(6.0 / 3**0.5)
    [leaf] = arguments(spec).args
    assert (leaf.array == leaf.array[:1]).all()
    assert (leaf.array.max(), leaf.array.min()) == (2.0, -2.0)
    assert leaf.array.flags.writeable


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


def call(shape: tuple[int, ...], dtype: str = "float32") -> Call:
    spec = TensorSpec(dtype, shape)
    return Call(([spec, None],), {"out": spec}, (spec,), (spec,))


def test_all_tensors_count() -> None:
    assert memory_needed(call((10, 10)), None) == 4 * 100 * 2 * (16 + 4)
    assert memory_needed(call((10, 10)), "bfloat16") == 4 * 100 * 2 * (16 + 2)
    assert memory_needed(call((10, 10), "int64"), "bfloat16") == 4 * 100 * 2 * (16 + 8)
    assert memory_needed(call((10,), "complex64"), None) == 4 * 10 * 2 * (32 + 8)
    assert memory_needed(Call((1, "x"), {}, None, None), None) == 0


def test_a_million_million_elements_are_refused() -> None:
    with pytest.raises(Unsupported) as caught:
        check_size(call((10**6, 10**6)), None, available_memory())
    needed = memory_needed(call((100,)), None)
    check_size(call((100,)), None, needed)
    with pytest.raises(Unsupported):
        check_size(call((100,)), None, needed - 1)
    assert caught.value.kind == "too large"
    assert str(caught.value).startswith("input_args.0.0: found float32 of shape [1000000, 1000000]; ")
    assert "; checking the call takes about 160,000.0 GB, more than the " in str(caught.value)
    assert str(caught.value).endswith(" GB of memory that may be taken here")


def test_a_device_holds_tensors_in_their_own_dtypes() -> None:
    assert bytes_on_device(call((100,)), None) == 3 * 100 * 4
    assert bytes_on_device(call((100,)), "bfloat16") == 3 * 100 * 2
    assert bytes_on_device(call((100,), "int64"), "bfloat16") == 3 * 100 * 8
    # The record's two arguments, without its output and its gradient.
    assert arguments_on_device(call((100,)), None) == 2 * 100 * 4
