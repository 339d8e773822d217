from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from pytest_probe.frameworks.torch.framework import TorchDevice
from pytest_probe.model.run import Arguments, Leaf, MeasuredCall, MemoryUse, Wanted, Way
from pytest_probe.system.machine import last_level_cache
from tests.support.devices import Emulated


def leaf(*shape: int, **layout: Any) -> Leaf:
    return Leaf(np.random.default_rng(0).standard_normal(shape).astype(np.float32), **layout)


def asked(kit: Any, function: Any, *args: Any, device: Any = None, **options: Any) -> Any:
    way = Way(device=device or kit.cpu)
    return kit.framework.repeated(MeasuredCall(function, Arguments(args, {}, None), way, **options))


class Seen:
    """A function that keeps what it is called with, and calls another one."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.tensors: list[Any] = []
        self.before: list[np.ndarray] = []

    def __call__(self, tensor: Any, *args: Any) -> Any:
        self.tensors.append(tensor)
        self.before.append(tensor.detach().numpy().copy())
        return self.function(tensor, *args)


def make(ready: Any) -> list[Any]:
    return [each() for each in ready]


DEVICES = [None, Emulated("sim")]


@pytest.mark.parametrize("sim", [False, True])
def test_sets_take_turns(kit: Any, sim: bool) -> None:
    device = DEVICES[sim and kit.name == "pytorch"]
    seen = Seen(kit.module.exp)
    with asked(kit, seen, leaf(3), device=device, sets=2) as repeated:
        make(repeated.ready(3))
        assert make(repeated.empty(2)) == [None] * 2
        make(repeated.ready(2))
    first, second = seen.tensors[:2]
    assert first.data_ptr() != second.data_ptr()
    assert [tensor is first for tensor in seen.tensors] == [True, False, True, False, True]
    assert all(np.array_equal(seen.before[0], before) for before in seen.before)


@pytest.mark.parametrize("strides", [None, (1, 4)], ids=["in order", "transposed"])
@pytest.mark.parametrize("graded", [False, True])
def test_a_call_in_place_gets_fresh_copies(kit: Any, strides: tuple[int, int] | None, graded: bool) -> None:
    wanted = Wanted(frozenset(["input.0"]), copies=True) if graded else None
    for device in DEVICES[: 1 + (kit.name == "pytorch")]:
        seen, given = Seen(kit.module.Tensor.exp_), leaf(4, 4, strides=strides)
        options = {"device": device, "writes": frozenset(["input.0"]), "wanted": wanted}
        with asked(kit, seen, given, **options) as repeated:
            ready = repeated.ready(3)
            assert not seen.tensors
            make(ready)
            make(repeated.ready(1))
        assert len({tensor.data_ptr() for tensor in seen.tensors[:3]}) == 3
        assert all(np.array_equal(before, given.array) for before in seen.before)
        # Paddle's fresh copies lie in order.
        assert kit.name == "paddle" or {tensor.stride() for tensor in seen.tensors} == {strides or (4, 1)}


@pytest.mark.parametrize("sim", [False, True])
def test_the_backward_gives_gradients_of_one_forward(kit: Any, sim: bool) -> None:
    device = DEVICES[sim and kit.name == "pytorch"]
    seen, x, incoming = Seen(kit.module.exp), leaf(3), np.array([1.0, 2.0, 3.0], np.float32)
    options = {"device": device, "wanted": Wanted(frozenset(["input.0"])), "incoming": {"output.0": incoming}}
    with asked(kit, seen, x, sets=2, **options) as repeated:
        found = make(repeated.ready(5))
        assert make(repeated.empty(2)) == [None] * 2
    assert len(seen.tensors) == 2
    assert all(np.allclose(gradient.numpy(), np.exp(x.array) * incoming) for (gradient,) in found)


@pytest.mark.parametrize("extra", [0, 1 << 22])
def test_memory_is_peak_and_growth_without_inputs(kit: Any, extra: int) -> None:
    def function(x: Any) -> Any:
        buffer = kit.module.empty([extra // 4]) if extra else None
        result = x + x
        del buffer
        return result

    with asked(kit, function, leaf(1 << 18)) as repeated:
        found = kit.framework.memory_use(kit.cpu, repeated.ready(1)[0])
    assert (found.growth, found.source) == (1 << 20, {"pytorch": "profiler"}.get(kit.name, "allocator"))
    assert abs(found.peak - (1 << 20) - extra) <= 4096


def test_clocks_and_caches_of_the_cpu_and_of_a_projects_device(kit: Any) -> None:
    assert kit.framework.clock(kit.cpu).name == "host"
    assert kit.framework.last_level_cache(kit.cpu) == last_level_cache()
    brought: list[Any] = []

    class Own:
        name = "cuda-like"

        def put(self, tensor: Any) -> Any:
            return tensor

        def call(self, function: Any, args: Any, kwargs: Any) -> Any:
            return function(*args, **kwargs)

        def get(self, tensor: Any) -> Any:
            brought.append(tensor)
            return tensor

    kit.framework.clock(Own()).mark()
    assert [list(tensor.shape) for tensor in brought] == [[1]]
    assert kit.framework.last_level_cache(Own()) == last_level_cache()


# Accelerators, as far as they can be told without one


class Event:
    """An event of a stream on which each mark is 2 ms behind the one before."""

    made = 0

    def __init__(self, device: str = "gpu:0", *, enable_timing: bool) -> None:
        assert (device, enable_timing) == ("gpu:0", True)
        self.at = -1

    def record(self) -> None:
        Event.made += 1
        self.at = Event.made

    def synchronize(self) -> None:
        assert self.at > 0

    def elapsed_time(self, end: Event) -> float:
        return 2.0 * (end.at - self.at)


class Accelerator:
    """torch's module of a kind of devices, or Paddle's device module, with what a backend has of it."""

    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)


@pytest.fixture
def accelerated(kit: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A device of the framework's own that its tensors never see, with these parts."""

    def of_torch(**parts: Any) -> Any:
        monkeypatch.setattr(kit.module, "get_device_module", lambda kind: Accelerator(**parts))
        return TorchDevice("cuda:0")

    def refused(*args: Any, **options: Any) -> Any:
        raise ValueError("not compiled with it")

    def of_paddle(**parts: Any) -> Any:
        from pytest_probe.frameworks.paddle.framework import PaddleDevice

        known = {"Event": refused, "synchronize": lambda device: None, **parts}
        for name in ("Event", "synchronize"):
            monkeypatch.setattr(kit.module.device, name, known[name])
        return PaddleDevice("gpu:0")

    return of_torch if kit.name == "pytorch" else of_paddle


def test_an_accelerators_clock_has_events(kit: Any, accelerated: Any) -> None:
    clock = kit.framework.clock(accelerated(Event=Event))
    assert clock.name == "events"
    first, second = clock.mark(), clock.mark()
    assert clock.seconds(first, second) == 2e-3


def test_without_events_the_host_waits_for_the_device(kit: Any, accelerated: Any) -> None:
    waited: list[Any] = []
    clock = kit.framework.clock(accelerated(synchronize=waited.append))
    before = len(waited)
    clock.mark()
    assert (clock.name, len(waited) - before, str(waited[-1])[-2:]) == ("host", 1, ":0")


def test_an_allocator_that_does_not_count_is_not_zero(kit: Any, accelerated: Any) -> None:
    device = accelerated()
    assert kit.framework.memory_use(device, lambda: None) is None
    assert kit.framework.last_level_cache(device) == 0


def test_an_accelerators_allocator_counts(kit: Any, accelerated: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if kit.name == "pytorch":
        held = [100, 700]
        parts: dict[str, Any] = {
            "memory_allocated": lambda place: held.pop(0),
            "max_memory_allocated": lambda place: 5100,
        }
        parts |= dict.fromkeys(("synchronize", "reset_peak_memory_stats"), lambda place: None)
        device = accelerated(**parts)
    else:
        device = accelerated()
        values: dict[str, list[int]] = {"current_value": [100, 700], "reset_peak_value": [0], "peak_value": [5100]}

        def counted(name: str, kind: str, number: int) -> int:
            assert (kind, number) == ("Allocated", 0)
            return values[name].pop(0)

        for name in values:
            monkeypatch.setattr(kit.module.base.core, f"device_memory_stat_{name}", partial(counted, name))
    assert kit.framework.memory_use(device, lambda: None) == MemoryUse(5000, 600, "allocator")
