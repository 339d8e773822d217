"""Pipelines of kernels that round to 16 bit between two of them pass where those borders are named, and their faults
are found."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pytest_probe.check import Checker, Conditions
from pytest_probe.model.verdict import Verdict
from pytest_probe.registry import Registry
from pytest_probe.standards.device_modes import judge
from tests.evidence.pipelines import PIPELINES
from tests.support.devices import Emulated


@pytest.fixture(autouse=True)
def no_causes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No verdict hangs on the cause of an error, which takes most of the time."""
    monkeypatch.setattr(judge, "diagnose", lambda *_: None)


DEVICES, DTYPES = ("cpu", "npu"), ("bfloat16", "float16")
FAULTS = [(name, fault) for name, pipeline in PIPELINES.items() for fault in pipeline.faults]


def verdicts(
    name: str, dtype: str, device: str, *, fault: str = "", named: bool = True, backward: bool = False, seed: int = 0
) -> tuple[Verdict, ...]:
    registry, pipeline = Registry.default(), PIPELINES[name]
    registry.devices["npu"] = Emulated
    checker = Checker(Conditions(device=device), registry)
    given = pipeline.inputs(torch.Generator().manual_seed(seed), getattr(torch, dtype))
    how: dict[str, Any] = {"borders": pipeline.bordered(checker.border)} if named else {}
    function = pipeline.function(**pipeline.faults.get(fault, {}))
    return checker.compare(function, pipeline.reference, given, key=name, backward=backward, **how)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_with_named_borders_passes(name: str, dtype: str, device: str) -> None:
    found = verdicts(name, dtype, device, backward=True)
    assert [verdict.reason for verdict in found if verdict.verdict != "pass"] == []


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "fault"), FAULTS)
def test_named_borders_hide_no_fault(name: str, fault: str, dtype: str, device: str) -> None:
    (found,) = verdicts(name, dtype, device, fault=fault)
    assert found.verdict == "error"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_cross_entropy_of_rounded_logits_is_an_error_without_that_border(dtype: str, device: str) -> None:
    (found,) = verdicts("cross-entropy of rounded logits", dtype, device, named=False)
    assert found.verdict == "error"


@pytest.mark.parametrize("device", DEVICES)
def test_a_named_border_changes_nothing_of_a_pipeline_that_passes_without(device: str) -> None:
    first, second = (verdicts("MLP", "bfloat16", device, named=named)[0] for named in (True, False))
    assert first.outputs[0].metrics == second.outputs[0].metrics
