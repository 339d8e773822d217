from __future__ import annotations

import pytest

from pytest_probe.errors import Unsupported
from pytest_probe.inputs import arguments_on_device, available_memory, bytes_on_device, check_size, memory_needed
from pytest_probe.model.dump import Call, TensorSpec


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
    assert caught.value.kind == "too large"
    assert str(caught.value).startswith("input_args.0.0: found float32 of shape [1000000, 1000000]; ")
    assert "; checking the call takes about 160,000.0 GB, more than the " in str(caught.value)
    assert str(caught.value).endswith(" GB of memory that may be taken here")


def test_the_limit_itself_is_allowed() -> None:
    needed = memory_needed(call((100,)), None)
    check_size(call((100,)), None, needed)
    with pytest.raises(Unsupported):
        check_size(call((100,)), None, needed - 1)


def test_a_device_holds_tensors_in_their_own_dtypes() -> None:
    assert bytes_on_device(call((100,)), None) == 3 * 100 * 4
    assert bytes_on_device(call((100,)), "bfloat16") == 3 * 100 * 2
    assert bytes_on_device(call((100,), "int64"), "bfloat16") == 3 * 100 * 8
    # The record's two arguments, without its output and its gradient.
    assert arguments_on_device(call((100,)), None) == 2 * 100 * 4


def test_this_machine_has_memory() -> None:
    assert available_memory() > 1 << 28
