from __future__ import annotations

import math
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from pytest_probe.frameworks.torch import memory
from tests.support import forks

DTYPES = [torch.float32, torch.bfloat16, torch.float64, torch.complex64, torch.int64, torch.bool, torch.uint8]
NUMBERS = [math.nan, 2.0**100]


def made(dtype: torch.dtype) -> torch.Tensor:
    return (torch.arange(24).reshape(4, 6) % 3).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("number", NUMBERS)
def test_the_tensor_in_its_zones_is_the_same(dtype: torch.dtype, number: float) -> None:
    for tensor in (made(dtype), made(dtype).t(), made(dtype)[:, 1:], made(dtype)[:, ::2]):
        zones = memory.zones(tensor, 64)
        assert zones is not None
        zones.fill(number)
        found = zones.tensor
        assert torch.equal(found, tensor)
        assert (found.stride(), found.dtype) == (tensor.stride(), tensor.dtype)
        assert found.data_ptr() % 64 == tensor.data_ptr() % 64
        assert zones.damage() == ""


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("element", "words"),
    [
        (-1, "1 element before its first"),
        (-64, "64 elements before its first"),
        (24, "1 element behind its last"),
        (87, "64 elements behind its last"),
    ],
)
def test_damage_is_counted_from_the_tensor(dtype: torch.dtype, element: int, words: str) -> None:
    zones = memory.zones(made(dtype), 64)
    assert zones is not None
    zones.fill(math.nan)
    whole = zones.tensor.untyped_storage()
    place = torch.empty(0, dtype=dtype).set_(whole, zones.tensor.storage_offset() + element, (1,), (1,))
    place.fill_(1)
    assert zones.damage() == words


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_what_lies_around_is_the_number(dtype: torch.dtype) -> None:
    zones = memory.zones(made(dtype), 64)
    assert zones is not None
    start, storage = zones.tensor.storage_offset(), zones.tensor.untyped_storage()
    zones.fill(math.nan)
    around = [torch.empty(0, dtype=dtype).set_(storage, start + at, (1,), (1,)) for at in (-1, 24)]
    assert all(bool(one.isnan()) for one in around)
    zones.fill(2.0**100)
    assert [float(one) for one in around] == [2.0**100] * 2


@pytest.mark.parametrize(
    ("dtype", "nan", "large"),
    [
        (torch.float32, math.nan, 2.0**100),
        (torch.float16, math.nan, torch.finfo(torch.float16).max),
        (torch.float8_e4m3fn, math.nan, torch.finfo(torch.float8_e4m3fn).max),
        (torch.int64, 0, 1),
    ],
    ids=str,
)
def test_what_tensors_are_filled_with(dtype: torch.dtype, nan: float, large: float) -> None:
    """A number beyond a dtype is its largest."""
    for tensor in (torch.full((3,), 7).to(dtype), torch.full((), 7).to(dtype)):
        for number, wanted in ((math.nan, nan), (2.0**100, large)):
            memory.fill(tensor, number)
            np.testing.assert_array_equal(tensor.double().numpy(), np.full(tensor.shape, wanted))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(1, 4).expand(3, 4),
        torch.ones(10).as_strided((3, 4), (1, 1)),
        torch.ones(0, 4),
        torch.ones(3, dtype=torch.complex64).conj(),
        torch.eye(3).to_sparse(),
    ],
    ids=["expanded", "overlapping", "empty", "conjugate", "sparse"],
)
def test_what_has_no_zones(tensor: torch.Tensor) -> None:
    assert memory.zones(tensor, 64) is None
    assert memory.at_page_end(tensor) is None


def test_refilled_is_the_same_memory() -> None:
    tensor = torch.ones(3, requires_grad=True)
    found = memory.refilled(tensor, torch.tensor([1.0, 2.0, 3.0]))
    assert (found.tolist(), found.data_ptr(), found.requires_grad) == ([1.0, 2.0, 3.0], tensor.data_ptr(), False)


def test_allocations_of_python_code_are_changed() -> None:
    def change(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.fill_(5)

    x = torch.ones(2, 3)
    with memory.allocations(change):
        made = [torch.empty(2), torch.empty_like(x), x.new_empty(2), torch.empty_strided((2,), (1,)), torch.zeros(2)]
    assert [float(one.flatten()[0]) for one in made] == [5.0, 5.0, 5.0, 5.0, 0.0]


@pytest.mark.parametrize(("number", "sign"), [(math.nan, -1), (2.0**100, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_what_is_not_written_is_a_large_number(dtype: torch.dtype, number: float, sign: int) -> None:
    like = [np.zeros(4096, np.float64)]
    with memory.unwritten(torch.device("cpu"), like, number) as known:
        found = torch.zeros(0, dtype=dtype).resize_(4096)
        values = found.clone()
    if not known:
        pytest.skip("this C library does not fill memory")
    assert bool((values * sign > 1e29).all())


AT_END = """
import torch
from pytest_probe.frameworks.torch import memory
x = memory.at_page_end(torch.arange(16.0))
assert x.tolist() == list(range(16)) and x.data_ptr() % 64 == 0
print("read", flush=True)
import ctypes
for beyond in (-1, 0):
    ctypes.string_at(x.data_ptr() + x.numel() * 4 + beyond, 1)
    print("read on", flush=True)
"""


def test_behind_the_page_the_process_dies(tmp_path: Path) -> None:
    done = forks.run(["-c", AT_END], tmp_path, os.environ)
    assert done.stdout.splitlines() == ["read", "read on"]
    assert done.returncode == -signal.SIGSEGV


def test_the_cpu_has_no_streams() -> None:
    assert not memory.has_streams(torch.device("cpu"))
