"""A call of Paddle's that is made again and again: on which tensors, and what it takes of memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from pytest_probe import frameworks
from pytest_probe.frameworks.paddle.framework import PaddleDevice
from pytest_probe.model.run import Arguments, Leaf, MeasuredCall, MemoryUse, Wanted, Way
from pytest_probe.system.machine import last_level_cache

FRAMEWORK = frameworks.load("paddle")
CPU = FRAMEWORK.device("cpu")


def leaf(*shape: int) -> Leaf:
    return Leaf(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def call(function: Any, *args: Any, **options: Any) -> MeasuredCall:
    return MeasuredCall(function, Arguments(args, {}, None), Way(device=CPU), **options)


def make(ready: Any) -> list[Any]:
    return [each() for each in ready]


def test_sets_take_turns() -> None:
    seen: list[Any] = []
    with FRAMEWORK.repeated(call(seen.append, leaf(3), sets=2)) as repeated:
        make(repeated.ready(3))
        assert make(repeated.empty(2)) == [None] * 2
    assert seen[0] is seen[2]
    assert seen[0] is not seen[1]


def test_a_call_in_place_gets_fresh_copies() -> None:
    given = leaf(4)
    with FRAMEWORK.repeated(call(paddle.Tensor.exp_, given, writes=frozenset(["input.0"]))) as repeated:
        found = make(repeated.ready(3)) + make(repeated.ready(1))
    assert all(np.allclose(tensor.numpy(), np.exp(given.array)) for tensor in found)


def test_the_backward_gives_gradients_of_one_forward() -> None:
    x, incoming = leaf(3), {"output.0": np.array([1.0, 2.0, 3.0], np.float32)}
    asked = call(paddle.exp, x, wanted=Wanted(frozenset(["input.0"])), incoming=incoming)
    with FRAMEWORK.repeated(asked) as repeated:
        found = make(repeated.ready(3))
    for (gradient,) in found:
        assert np.allclose(gradient.numpy(), np.exp(x.array) * incoming["output.0"])


@pytest.mark.parametrize("extra", [0, 1 << 22])
def test_memory_is_peak_and_growth_without_inputs(extra: int) -> None:
    def function(x: Any) -> Any:
        buffer = paddle.empty([extra // 4]) if extra else None
        result = x + x
        del buffer
        return result

    with FRAMEWORK.repeated(call(function, leaf(1 << 18))) as repeated:
        found = FRAMEWORK.memory_use(CPU, repeated.ready(1)[0])
    assert found is not None
    assert (found.growth, found.source) == (1 << 20, "allocator")
    assert abs(found.peak - (1 << 20) - extra) <= 4096


def test_the_cpus_clock_is_the_hosts() -> None:
    assert FRAMEWORK.clock(CPU).name == "host"


# Accelerators, as far as they can be told without one


class Event:
    """An event of a stream on which each mark is 2 ms behind the one before."""

    made = 0

    def __init__(self, device: str, enable_timing: bool) -> None:
        assert (device, enable_timing) == ("gpu:0", True)
        self.at = -1

    def record(self) -> None:
        Event.made += 1
        self.at = Event.made

    def synchronize(self) -> None:
        assert self.at > 0

    def elapsed_time(self, end: Event) -> float:
        return 2.0 * (end.at - self.at)


def test_an_accelerators_clock_has_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paddle.device, "Event", Event)
    clock = FRAMEWORK.clock(PaddleDevice("gpu:0"))
    assert clock.name == "events"
    assert clock.seconds(clock.mark(), clock.mark()) == 2e-3


def test_without_events_the_host_waits_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[str] = []

    def refused(**options: Any) -> Any:
        raise ValueError("not compiled with it")

    monkeypatch.setattr(paddle.device, "Event", refused)
    monkeypatch.setattr(paddle.device, "synchronize", waited.append)
    clock = FRAMEWORK.clock(PaddleDevice("gpu:0"))
    clock.mark()
    assert (clock.name, waited) == ("host", ["gpu:0"])


def test_the_clock_of_a_projects_device_brings_a_tensor_back() -> None:
    brought: list[Any] = []

    class Own:
        name = "sim"

        def put(self, tensor: Any) -> Any:
            return tensor

        def call(self, function: Any, args: Any, kwargs: Any) -> Any:
            return function(*args, **kwargs)

        def get(self, tensor: Any) -> Any:
            brought.append(tensor)
            return tensor

    FRAMEWORK.clock(Own()).mark()
    assert len(brought) == 1
    assert FRAMEWORK.last_level_cache(Own()) == last_level_cache()
    assert FRAMEWORK.last_level_cache(PaddleDevice("gpu:0")) == 0


def test_an_accelerators_allocator_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []
    values: dict[str, list[int]] = {"current_value": [100, 700], "reset_peak_value": [0], "peak_value": [5100]}

    def counted(name: str, kind: str, number: int) -> int:
        asked.append((kind, number))
        return values[name].pop(0)

    for name in values:
        monkeypatch.setattr(paddle.base.core, f"device_memory_stat_{name}", partial(counted, name))
    monkeypatch.setattr(paddle.device, "synchronize", lambda device: None)
    found = FRAMEWORK.memory_use(PaddleDevice("gpu:1"), lambda: None)
    assert found == MemoryUse(5000, 600, "allocator")
    assert set(asked) == {("Allocated", 1)}


def test_an_allocator_that_does_not_count_is_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paddle.device, "synchronize", lambda device: None)
    assert FRAMEWORK.memory_use(PaddleDevice("gpu:0"), lambda: None) is None
