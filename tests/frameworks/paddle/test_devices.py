from __future__ import annotations

import pytest

pytest.importorskip("paddle")

from pytest_probe.frameworks.paddle.devices import is_device_memory, memory_errors

GPU = """

--------------------------------------
C++ Traceback (most recent call last):
--------------------------------------
0   paddle::pybind::eager_api_matmul(_object*, _object*, _object*)

----------------------
Error Message Summary:
----------------------
ResourceExhaustedError:

Out of memory error on GPU 0. Cannot allocate 37.252903GB memory on GPU 0, 0.000000B memory has been allocated and \
available memory is only 14.420654GB.
"""


@memory_errors
def raising(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "of_device"),
    [
        (MemoryError(GPU), True),
        (MemoryError("(ResourceExhausted) Cannot allocate 2.000000GB memory on XPU 0"), True),
        (OSError("(External) CUDA error(2), out of memory."), True),
        (MemoryError("ResourceExhaustedError: Fail to alloc memory of 8000000000000 size, error code is 12."), False),
        (RuntimeError("std::bad_alloc"), False),
        (ValueError("(InvalidArgument) shape mismatch"), False),
    ],
)
def test_whose_memory_ran_out(error: Exception, of_device: bool) -> None:
    assert is_device_memory(error) is of_device
    expected = ValueError if isinstance(error, ValueError) else MemoryError
    with pytest.raises(expected) as caught:
        raising(error)
    assert is_device_memory(caught.value) is of_device
