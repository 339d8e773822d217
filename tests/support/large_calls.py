"""Calls of some thousand elements that are cut and sampled as large ones are, and the verdicts on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_probe.check import Checker, RunRequest
from pytest_probe.check.large import cuts, pieces
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.registry import Registry
from tests.support.devices import Emulated


def cut_small_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is large is some thousand elements, of many pieces that do not divide it."""
    monkeypatch.setattr(cuts, "LARGE", 2**14)
    monkeypatch.setattr(cuts, "PIECE", 3000)
    monkeypatch.setattr(cuts, "WINDOW", 2**9)
    monkeypatch.setattr(pieces, "DRAWN", 2**11)
    monkeypatch.setattr(pieces, "FEWEST", 2**6)


def outputs(
    function: Callable[..., Any],
    reference: Callable[..., Any],
    given: list[Any],
    device: str = "cpu",
    *,
    backward: bool = False,
    api: str = "",
) -> dict[str, OutputVerdict]:
    registry = Registry.default()
    registry.devices["npu"] = Emulated
    checker = Checker(RunRequest(device=device, diagnosed=False), registry)
    found = checker.compare(function, reference, given, key="call", backward=backward, api=api)
    return {output.name: output for verdict in found for output in verdict.outputs}
