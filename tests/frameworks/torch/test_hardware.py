"""What a device is made of."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from pytest_probe.frameworks.torch.hardware import hardware
from pytest_probe.system.processor import processor


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
