from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from pytest_probe.errors import HookFailed
from pytest_probe.frameworks.torch.arrays import hardware, is_device_memory, memory_errors, memory_left, release_memory
from pytest_probe.system.machine import processor


def test_the_cpu_has_a_name_and_instructions() -> None:
    assert hardware("cpu") == {"hardware": f"{processor()}, {torch.backends.cpu.get_cpu_capability()}"}
    assert processor()


def test_an_accelerator_tells_its_name_and_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(get_device_name=lambda index: f"GPU {index}")
    monkeypatch.setattr(torch, "get_device_module", lambda kind: module)
    monkeypatch.setattr(torch._C, "_cuda_getDriverVersion", lambda: 12040, raising=False)
    monkeypatch.setattr(torch.version, "cuda", "12.4")
    found = hardware("cuda:1")
    assert (found["hardware"], found["driver"], found["toolkit"]) == ("GPU 1", "12040", "12.4")


def test_a_device_of_the_projects_own_tells_nothing() -> None:
    assert hardware("other:0") == {}


@memory_errors
def raising(error: Exception) -> None:
    raise error


def test_a_real_allocation() -> None:
    with pytest.raises(MemoryError, match="allocate"):
        memory_errors(torch.empty)(10**17)


def test_what_a_device_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = {"cuda": SimpleNamespace(mem_get_info=lambda place: (5, 8)), "mps": SimpleNamespace()}
    monkeypatch.setattr(torch, "get_device_module", modules.__getitem__)
    assert memory_left(torch.device("cpu")) is None
    assert memory_left(torch.device("cuda", 0)) == 5
    assert memory_left(torch.device("mps")) is None


def test_a_cache_is_emptied_where_a_device_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    emptied = []
    modules = {"cuda": SimpleNamespace(empty_cache=lambda: emptied.append("cuda")), "mps": SimpleNamespace()}
    monkeypatch.setattr(torch, "get_device_module", modules.__getitem__)
    for name in ("cpu", "mps", "cuda:0"):
        release_memory(torch.device(name))
    assert emptied == ["cuda"]


@pytest.mark.parametrize(
    ("error", "of_device"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of"), True),
        (RuntimeError("NPU out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory"), False),
        (RuntimeError("std::bad_alloc"), False),
        (MemoryError("Unable to allocate 74.5 GiB for an array"), False),
        (RuntimeError("shape mismatch"), False),
    ],
)
def test_whose_memory_ran_out(error: Exception, of_device: bool) -> None:
    assert is_device_memory(error) is of_device
    own = HookFailed("what a project's own code made of it")
    own.__cause__ = error
    for given in (error, own):
        with pytest.raises((RuntimeError, HookFailed) if "shape" in str(error) else MemoryError):
            raising(given)
    with pytest.raises(RuntimeError) as caught:
        raise RuntimeError("a call of the user's failed") from error
    assert is_device_memory(caught.value) is of_device
