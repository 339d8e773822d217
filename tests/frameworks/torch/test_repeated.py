"""What torch's repeated calls do, beside what test_repeated.py asks of each framework."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pytest_probe import frameworks
from pytest_probe.frameworks.torch.framework import TorchDevice
from pytest_probe.model.run import Arguments, MeasuredCall, MemoryUse, Wanted, Way
from tests.frameworks.test_repeated import Accelerator, leaf

FRAMEWORK = frameworks.load("pytorch")
CPU = FRAMEWORK.device("cpu")


@pytest.mark.parametrize("graded", [False, True])
def test_the_graph_is_recorded_as_it_was(graded: bool) -> None:
    wanted = Wanted(frozenset(["input.0"])) if graded else None
    call = MeasuredCall(torch.exp, Arguments((leaf(3),), {}, None), Way(device=CPU), wanted=wanted)
    with FRAMEWORK.repeated(call) as repeated:
        results: list[Any] = [each() for each in repeated.ready(1)]
    assert [result.requires_grad for result in results] == [graded]


def test_memory_is_not_measured_inside_another_profile() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        assert FRAMEWORK.memory_use(CPU, lambda: torch.ones(3)) is None
    assert FRAMEWORK.memory_use(CPU, lambda: None) == MemoryUse(0, 0, "profiler")


def accelerated(monkeypatch: pytest.MonkeyPatch, **parts: Any) -> TorchDevice:
    monkeypatch.setattr(torch, "get_device_module", lambda kind: Accelerator(**parts))
    return TorchDevice("cuda:0")


def test_what_has_neither_events_nor_waits_brings_a_tensor_back(monkeypatch: pytest.MonkeyPatch) -> None:
    device = accelerated(monkeypatch)
    monkeypatch.setattr(device, "put", lambda tensor: tensor)
    assert FRAMEWORK.clock(device).name == "host"
    FRAMEWORK.clock(device).mark()


def test_the_last_cache_of_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = Accelerator(L2_cache_size=50 << 20)
    device = accelerated(monkeypatch, get_device_properties=lambda place: properties)
    assert FRAMEWORK.last_level_cache(device) == 50 << 20


def test_an_allocator_that_says_0_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("synchronize", "memory_allocated", "reset_peak_memory_stats", "max_memory_allocated")
    device = accelerated(monkeypatch, **{name: lambda place: 0 for name in names})
    assert FRAMEWORK.memory_use(device, lambda: None) is None
