"""A case whose device ran out of its own memory runs once more, with nothing of its record left there."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_probe.check import Case, CaseOutcome, Checker, RunRequest
from pytest_probe.check.device_memory import DeviceMemory
from pytest_probe.errors import DeviceMemoryError
from pytest_probe.model.dump import Call, Dump, Record, Surroundings, TensorSpec
from pytest_probe.model.verdict import Verdict
from pytest_probe.registry import Registry
from tests.support.devices import Emulated
from tests.support.installed import needs_paddle

# The frameworks with the API of relu, and what each raises.
RELU = {"pytorch": ("Functional", "relu"), "paddle": ("paddle", "nn.functional.relu")}
OF_DEVICE: dict[str, Callable[[], Exception]] = {
    "pytorch": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    "paddle": lambda: MemoryError("ResourceExhaustedError: Out of memory error on GPU 0. Cannot allocate 2GB"),
}
FRAMEWORKS = ["pytorch", pytest.param("paddle", marks=needs_paddle)]


class Failing(Emulated):
    """Raises when the tensors of these numbers are put there, and tells which of them somebody still had then."""

    def __init__(self, error: Callable[[], Exception], numbers: range) -> None:
        super().__init__("other")
        self.error, self.numbers = error, numbers
        self.made: list[weakref.ref[Any]] = []
        self.had: list[int] = []

    def put(self, tensor: Any) -> Any:
        number = len(self.made)
        self.had.append(sum(one() is not None for one in self.made))
        found = tensor.clone()
        self.made.append(weakref.ref(found))
        if number in self.numbers:
            raise self.error()
        return found


def check(framework: str, device: Emulated) -> list[Verdict]:
    """Forward and backward of relu; each puts one tensor there."""
    namespace, api = RELU[framework]
    spec = TensorSpec("float32", (2, 3), requires_grad=True)
    record = Record(f"{namespace}.{api}.0", namespace, api, 0, b"", b"")
    call = Call((spec,), {}, (spec,), (spec,), surroundings=Surroundings())
    dump = Dump(Path("recorded"), framework, "", "", (record,), lambda _: call, lambda _: ())
    registry = Registry.default()
    registry.devices["other"] = lambda name: device
    checker = Checker(RunRequest(device="other"), registry)
    checked: CaseOutcome | None = None
    found = []
    for direction in record.directions:
        checked = checker.run(Case(dump, record, direction, None), checked)
        found.append(checked.verdict)
    return found


def kinds(verdicts: list[Verdict]) -> list[tuple[str, str]]:
    return [(verdict.verdict, verdict.kind) for verdict in verdicts]


TOO_LARGE = ("skip", "too large for the device")


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    ("error", "times", "found", "made"),
    [
        (None, 1, [("pass", ""), ("pass", "")], 3),
        (None, 9, [TOO_LARGE, TOO_LARGE], 2),  # nor does the backward try, which needs as much
        (MemoryError("std::bad_alloc"), 1, [("skip", "out of memory")], 1),
        (RuntimeError("no such block"), 1, [("error", "")], 1),
    ],
)
def test_a_call_without_device_memory_alone_runs_once_more(
    framework: str, error: Exception | None, times: int, found: list[tuple[str, str]], made: int
) -> None:
    def raised() -> Exception:
        return error or OF_DEVICE[framework]()

    device = Failing(raised, range(times))
    verdicts = check(framework, device)
    assert kinds(verdicts)[: len(found)] == found
    assert len(device.made) == made
    if found[0] == TOO_LARGE:
        where = "it was alone on other, where the framework does not say how many are free"
        assert verdicts[0].reason.endswith(f": its arguments and outputs take 48 bytes; {where}: {raised()}")


def test_a_backward_gives_back_its_forward_first() -> None:
    """Whose tensor is there at the first try, and is there no more at the second. (Paddle's tensors live on in a graph
    that Python does not see.)"""
    device = Failing(OF_DEVICE["pytorch"], range(1, 2))
    assert kinds(check("pytorch", device)) == [("pass", ""), ("pass", "")]
    assert device.had[:3] == [0, 1, 0]


class Shared:
    """Of a framework what a device's memory asks for: each release notes how many tensors somebody still has."""

    def __init__(self) -> None:
        self.made: list[weakref.ref[Any]] = []
        self.had: list[int] = []

    def memory_left(self, device: object) -> int:
        return 1000

    def release_memory(self, device: object) -> None:
        self.had.append(sum(one() is not None for one in self.made))


def test_what_an_error_held_is_free_before_another_process_has_its_turn(tmp_path: Path) -> None:
    """Else that process, alone on the device, finds it too full."""
    shared: Any = Shared()

    def first() -> None:
        tensor = torch.empty(120)
        shared.made.append(weakref.ref(tensor))
        raise DeviceMemoryError("out of memory")

    memory = DeviceMemory(shared, Emulated("other"), tmp_path)
    with memory.turn(lambda: 480):
        first()
    with memory.turn_alone(lambda: 480):
        pass
    # At the end of its turn, and at the beginning and the end of the one that it has alone.
    assert shared.had == [0, 0, 0]
