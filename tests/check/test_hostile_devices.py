"""Whatever a registered device does, its item has a verdict, and the next item its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pytest_probe.check import Case, CaseOutcome, Checker, RunRequest
from pytest_probe.model.verdict import Verdict
from pytest_probe.records import read_dump
from pytest_probe.registry import Registry
from tests.support.endings import ENDINGS
from tests.support.writing import entries, write_dump

# What is given in a tensor's place.
WRONG: Mapping[str, Callable[[torch.Tensor], Any]] = {
    "None": lambda tensor: None,
    "NumPy's array": lambda tensor: tensor.detach().numpy(),
    "NumPy's scalar": lambda tensor: np.float32(1),
    "float": lambda tensor: 1.5,
    "text": lambda tensor: "x",
    "object": lambda tensor: object(),
    "nested": lambda tensor: [[tensor, [tensor]], {"x": tensor}],
    "another shape": lambda tensor: tensor[:1],
    "no elements": lambda tensor: torch.zeros(0),
    "another dtype": lambda tensor: tensor.to(torch.float64),
    "integers": lambda tensor: tensor.to(torch.int64),
    "meta": lambda tensor: tensor.to("meta"),
    "sparse": lambda tensor: tensor.detach().to_sparse(),
    **{f"raises {name[:20]}": end for name, end in ENDINGS.items()},
}


class Device:
    """Does as it should, but for one method at one call of an API."""

    name = "hostile"

    def __init__(self, method: str, wrong: Callable[[Any], Any]) -> None:
        self.method = method
        self.wrong = wrong
        self.active = False

    def put(self, tensor: torch.Tensor) -> Any:
        return self._given("put", tensor.clone())

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return self._given("call", function(*args, **kwargs))

    def get(self, tensor: torch.Tensor) -> Any:
        return self._given("get", tensor.detach().clone())

    def _given(self, method: str, value: Any) -> Any:
        return self.wrong(value) if self.active and method == self.method else value

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        raise RuntimeError("no text")


class Keeping(Device):
    """Keeps what it is given, and changes it at the next call."""

    def __init__(self) -> None:
        super().__init__("", lambda value: value)
        self.kept: list[torch.Tensor] = []

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        for tensor in self.kept:
            tensor.data.fill_(7)
        self.kept = [*args]
        return super().call(function, args, kwargs)


class Writing(Device):
    """Writes to its inputs while it runs."""

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self.active:
            args[0].data.mul_(2)
        return super().call(function, args, kwargs)


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    calls = {
        **entries("Functional.gelu.0", torch.nn.functional.gelu, torch.randn(4), backward=True),
        **entries("Functional.gelu.1", torch.nn.functional.gelu, torch.randn(4), backward=True),
    }
    return write_dump(tmp_path_factory.mktemp("hostile"), calls)


def verdicts(path: Path, device: Device) -> list[Verdict]:
    """Both directions of both records; the device is hostile at the first record."""
    registry = Registry.default()
    registry.devices["hostile"] = lambda name: device
    checker = Checker(RunRequest(device="hostile"), registry)
    read = read_dump(path)
    found: list[Verdict] = []
    for number, record in enumerate(read.records):
        device.active = number == 0
        checked: CaseOutcome | None = None
        for direction in record.directions:
            checked = checker.run(Case(read, record, direction, None), checked)
            found.append(checked.verdict)
    return found


@pytest.mark.parametrize("method", ["put", "call", "get"])
@pytest.mark.parametrize("wrong", WRONG)
def test_what_a_method_gives_ends_in_its_items_verdict(dump: Path, method: str, wrong: str) -> None:
    forward, backward, *after = verdicts(dump, Device(method, WRONG[wrong]))
    # A sparse tensor is one that NumPy has not; a device whose memory ran out is not wrong.
    expected = "skip" if wrong in ("sparse", "raises MemoryError") else "error"
    # An array that a call returns holds the right numbers; without a graph it has no gradient.
    assert forward.verdict == ("pass" if (method, wrong) == ("call", "NumPy's array") else expected)
    assert backward.verdict in ("error", "skip")
    assert [verdict.verdict for verdict in after] == ["pass", "pass"]
    assert len(forward.reason) < 1000


def test_inputs_written_to_are_found(dump: Path) -> None:
    found = verdicts(dump, Writing("", lambda value: value))
    assert [verdict.verdict for verdict in found] == ["error", "error", "pass", "pass"]


def test_inputs_kept_and_changed_later_reach_no_verdict(dump: Path) -> None:
    assert [verdict.verdict for verdict in verdicts(dump, Keeping())] == ["pass"] * 4
