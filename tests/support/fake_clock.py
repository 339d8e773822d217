"""A clock that moves only where a test moves it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import pytest

from pytest_probe.frameworks.torch.calls import TorchCalls
from pytest_probe.frameworks.torch.framework import TorchDevice
from pytest_probe.model import measurement
from tests.support.devices import Emulated


class FakeClock:
    """Device and host have the same time."""

    name: Literal["host", "events"] = "events"
    block = 1e-4

    def __init__(self) -> None:
        self.time = 0.0
        self.marks = 0

    def mark(self) -> float:
        self.marks += 1
        return self.time

    def seconds(self, start: float, end: float) -> float:
        return end - start

    def calls(self, *seconds: float) -> Callable[[int], Sequence[Callable[[], object]]]:
        """Calls that take these seconds, one after the other, the last one for ever."""
        left = list(seconds)

        def call() -> None:
            self.time += left.pop(0) if len(left) > 1 else left[0]

        return lambda number: [call] * number


@pytest.fixture
def fake_clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """Takes the place of the host's time."""
    fake = FakeClock()
    monkeypatch.setattr(measurement, "now", lambda: fake.time)
    return fake


class Machine(FakeClock):
    """A machine on which calls take what it says, in seconds by the function's name, and nothing else takes time."""

    def __init__(self) -> None:
        super().__init__()
        self.costs: dict[str, float] = {"_nothing": 1e-4, "matmul": 2e-3}
        self.default = 1e-3
        self.slept: list[float] = []

    def took(self, name: str) -> None:
        self.time += self.costs.get(name, self.default)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Runs inside this process, on the CPU and on devices of tests, are on such a machine."""
    found = Machine()

    def call(self: object, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> object:
        found.took(getattr(function, "__name__", ""))
        return function(*args, **kwargs)

    right = TorchCalls.backward_again

    def gradients(*args: Any) -> object:
        found.took("backward")
        return right(*args)

    def sleep(seconds: float) -> None:
        found.slept.append(seconds)
        found.time += seconds

    monkeypatch.setattr(measurement, "now", lambda: found.time)
    monkeypatch.setattr(measurement, "sleep", sleep)
    monkeypatch.setattr(TorchDevice, "call", call)
    monkeypatch.setattr(Emulated, "call", call)
    monkeypatch.setattr(TorchCalls, "backward_again", gradients)
    return found
