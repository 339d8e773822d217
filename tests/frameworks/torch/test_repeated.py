"""A call that is made again and again: on which tensors, and what it takes of memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from pytest_probe import frameworks
from pytest_probe.frameworks.torch.framework import TorchDevice
from pytest_probe.model.measurement import HostClock
from pytest_probe.model.run import Arguments, Leaf, MeasuredCall, MemoryUse, Wanted, Way
from pytest_probe.system.machine import last_level_cache
from tests.support.devices import Emulated

FRAMEWORK = frameworks.load("pytorch")
CPU = FRAMEWORK.device("cpu")
DEVICES = {"cpu": CPU, "sim": Emulated("sim")}


def leaf(*shape: int, **layout: Any) -> Leaf:
    return Leaf(np.random.default_rng(0).standard_normal(shape).astype(np.float32), **layout)


def call(function: Any, *args: Any, device: str = "cpu", **options: Any) -> MeasuredCall:
    return MeasuredCall(function, Arguments(args, {}, None), Way(device=DEVICES[device]), **options)


class Seen:
    """A function that keeps what it is called with, and calls another one."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.tensors: list[torch.Tensor] = []
        self.before: list[torch.Tensor] = []

    def __call__(self, tensor: torch.Tensor, *args: Any) -> Any:
        self.tensors.append(tensor)
        self.before.append(tensor.detach().clone())
        return self.function(tensor, *args)


def make(ready: Any) -> list[Any]:
    return [each() for each in ready]


@pytest.mark.parametrize("device", DEVICES)
def test_sets_take_turns(device: str) -> None:
    seen = Seen(torch.exp)
    with FRAMEWORK.repeated(call(seen, leaf(3), device=device, sets=2)) as repeated:
        make(repeated.ready(3))
        make(repeated.ready(2))
    first, second = seen.tensors[:2]
    assert first.data_ptr() != second.data_ptr()
    assert torch.equal(first, second)
    assert [tensor is first for tensor in seen.tensors] == [True, False, True, False, True]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("strides", [None, (1, 4)], ids=["in order", "transposed"])
@pytest.mark.parametrize("graded", [False, True])
def test_a_call_in_place_gets_fresh_copies(device: str, strides: tuple[int, int] | None, graded: bool) -> None:
    seen, wanted = Seen(torch.Tensor.relu_), Wanted(frozenset(["input.0"]), copies=True) if graded else None
    given = leaf(4, 4, strides=strides)
    with FRAMEWORK.repeated(call(seen, given, device=device, writes=frozenset(["input.0"]), wanted=wanted)) as repeated:
        ready = repeated.ready(3)
        assert not seen.tensors
        make(ready)
        make(repeated.ready(1))
    assert len({tensor.data_ptr() for tensor in seen.tensors[:3]}) == 3
    assert all(torch.equal(tensor, torch.from_numpy(given.array)) for tensor in seen.before)
    assert all(tensor.stride() == (strides or (4, 1)) for tensor in seen.tensors)


def test_without_writing_nothing_is_copied() -> None:
    seen = Seen(torch.exp)
    with FRAMEWORK.repeated(call(seen, leaf(3))) as repeated:
        make(repeated.ready(4))
    assert len({id(tensor) for tensor in seen.tensors}) == 1


def test_an_empty_call_calls_nothing() -> None:
    seen = Seen(torch.exp)
    with FRAMEWORK.repeated(call(seen, leaf(3))) as repeated:
        assert make(repeated.empty(4)) == [None] * 4
    assert not seen.tensors


@pytest.mark.parametrize("device", DEVICES)
def test_the_backward_gives_gradients_of_one_forward(device: str) -> None:
    seen, x = Seen(torch.exp), leaf(3)
    incoming = {"output.0": np.array([1.0, 2.0, 3.0], np.float32)}
    asked = call(seen, x, device=device, wanted=Wanted(frozenset(["input.0"])), incoming=incoming, sets=2)
    with FRAMEWORK.repeated(asked) as repeated:
        found = make(repeated.ready(5))
        assert make(repeated.empty(2)) == [None] * 2
    assert len(seen.tensors) == 2
    for (gradient,) in found:
        assert torch.allclose(gradient, torch.from_numpy(np.exp(x.array) * incoming["output.0"]))


@pytest.mark.parametrize("graded", [False, True])
def test_the_graph_is_recorded_as_it_was(graded: bool) -> None:
    wanted = Wanted(frozenset(["input.0"])) if graded else None
    with FRAMEWORK.repeated(call(torch.exp, leaf(3), wanted=wanted)) as repeated:
        (result,) = make(repeated.ready(1))
    assert result.requires_grad is graded


def test_memory_is_peak_and_growth_without_inputs() -> None:
    def extra(x: torch.Tensor) -> torch.Tensor:
        buffer = torch.empty(1 << 20)  # 4 MB
        return x + buffer[: x.numel()].mul(0)

    for function, peak in ((torch.exp, 0), (extra, 1 << 22)):
        with FRAMEWORK.repeated(call(function, leaf(1 << 18))) as repeated:
            found = FRAMEWORK.memory_use(CPU, repeated.ready(1)[0])
        assert found is not None
        assert (found.growth, found.source) == (1 << 20, "profiler")
        # The product with 0 is a temporary of the size of the result.
        assert abs(found.peak - (1 << 20) - peak - (peak and 1 << 20)) < 4096


def test_memory_is_not_measured_inside_another_profile() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        assert FRAMEWORK.memory_use(CPU, lambda: torch.ones(3)) is None


def test_a_call_that_takes_nothing() -> None:
    assert FRAMEWORK.memory_use(CPU, lambda: None) == MemoryUse(0, 0, "profiler")


def test_the_cpus_clock_is_the_hosts() -> None:
    assert isinstance(FRAMEWORK.clock(CPU), HostClock)
    assert FRAMEWORK.clock(CPU).name == "host"


def test_the_clock_of_a_projects_device_brings_a_tensor_back() -> None:
    brought: list[torch.Tensor] = []

    class Waiting(Emulated):
        def get(self, tensor: torch.Tensor) -> torch.Tensor:
            brought.append(tensor)
            return tensor

    clock = FRAMEWORK.clock(Waiting("cuda-like"))
    clock.mark()
    assert [tensor.shape for tensor in brought] == [(1,)]


# Accelerators, as far as they can be told without one


class Event:
    """An event of a stream on which each mark is 2 ms behind the one before."""

    made = 0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.at = -1

    def record(self) -> None:
        Event.made += 1
        self.at = Event.made

    def synchronize(self) -> None:
        assert self.at > 0

    def elapsed_time(self, end: Event) -> float:
        return 2.0 * (end.at - self.at)


class Accelerator:
    """torch's module of a kind of devices, with what a backend has of it."""

    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)


def accelerated(monkeypatch: pytest.MonkeyPatch, **parts: Any) -> TorchDevice:
    """A device of torch's own that its tensors never see."""
    monkeypatch.setattr(torch, "get_device_module", lambda kind: Accelerator(**parts))
    return TorchDevice("cuda:0")


def test_an_accelerators_clock_has_events(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FRAMEWORK.clock(accelerated(monkeypatch, Event=Event))
    assert clock.name == "events"
    first, second = clock.mark(), clock.mark()
    assert clock.seconds(first, second) == 2e-3


def test_without_events_the_host_waits_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Any] = []
    clock = FRAMEWORK.clock(accelerated(monkeypatch, synchronize=waited.append))
    before = len(waited)
    clock.mark()
    assert (clock.name, len(waited) - before, waited[-1]) == ("host", 1, torch.device("cuda:0"))


def test_what_has_neither_brings_a_tensor_back(monkeypatch: pytest.MonkeyPatch) -> None:
    device = accelerated(monkeypatch)
    monkeypatch.setattr(device, "put", lambda tensor: tensor)
    assert FRAMEWORK.clock(device).name == "host"
    FRAMEWORK.clock(device).mark()


def test_an_accelerators_allocator_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    held = [100, 700]
    parts = {
        "synchronize": lambda place: None,
        "memory_allocated": lambda place: held.pop(0),
        "reset_peak_memory_stats": lambda place: None,
        "max_memory_allocated": lambda place: 5100,
    }
    assert FRAMEWORK.memory_use(accelerated(monkeypatch, **parts), lambda: None) == MemoryUse(5000, 600, "allocator")


def test_an_allocator_that_does_not_count_is_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    assert FRAMEWORK.memory_use(accelerated(monkeypatch), lambda: None) is None


def test_the_last_cache_of_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = Accelerator(L2_cache_size=50 << 20)
    assert (
        FRAMEWORK.last_level_cache(accelerated(monkeypatch, get_device_properties=lambda place: properties)) == 50 << 20
    )
    assert FRAMEWORK.last_level_cache(accelerated(monkeypatch)) == 0
    assert FRAMEWORK.last_level_cache(CPU) == last_level_cache()


def test_an_allocator_that_says_0_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("synchronize", "memory_allocated", "reset_peak_memory_stats", "max_memory_allocated")
    device = accelerated(monkeypatch, **{name: lambda place: 0 for name in names})
    assert FRAMEWORK.memory_use(device, lambda: None) is None
