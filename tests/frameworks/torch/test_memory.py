"""Errors of torch's that say that memory ran out, and what a device has left."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from pytest_probe.errors import HookFailed
from pytest_probe.frameworks.torch.memory import memory_errors, memory_left


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."),
        RuntimeError("std::bad_alloc"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        MemoryError(),
    ],
)
def test_what_ran_out_is_a_memory_error(error: Exception) -> None:
    with pytest.raises(MemoryError), memory_errors():
        raise error
    with pytest.raises(MemoryError), memory_errors():
        raise HookFailed("what a project's own code made of it") from error


def test_other_errors_stay() -> None:
    with pytest.raises(RuntimeError, match="shape mismatch"), memory_errors():
        raise RuntimeError("shape mismatch")


def test_a_real_allocation() -> None:
    with pytest.raises(MemoryError, match="allocate"), memory_errors():
        torch.empty(10**17)


def test_what_a_device_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = {"cuda": SimpleNamespace(mem_get_info=lambda place: (5, 8)), "mps": SimpleNamespace()}
    monkeypatch.setattr(torch, "get_device_module", modules.__getitem__)
    assert memory_left(torch.device("cpu")) is None
    assert memory_left(torch.device("cuda", 0)) == 5
    assert memory_left(torch.device("mps")) is None
