"""References that write dtypes down are judged as those that take them from their arguments."""

from __future__ import annotations

import pytest
import torch

from pytest_probe.check import Checker, Conditions
from pytest_probe.model.verdict import Verdict
from pytest_probe.registry import Registry
from tests.evidence.pairs import each_dtype_once
from tests.evidence.references import FAULTS, WRITTEN, Function, inputs, kernel
from tests.support.devices import Emulated

pytestmark = pytest.mark.usefixtures("causes_once")

DTYPES = ("float32", "bfloat16", "float16")


def verdicts(function: Function, reference: Function, name: str, dtype: str, device: str) -> tuple[Verdict, ...]:
    registry = Registry.default()
    registry.devices["npu"] = Emulated
    checker = Checker(Conditions(device=device), registry)
    given = inputs(WRITTEN[name], getattr(torch, dtype))
    return checker.compare(function, reference, given, backward=True, key=f"reference.{name}")


@pytest.mark.sampled
@pytest.mark.parametrize("device", ["cpu", "npu"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", WRITTEN)
def test_a_kernel_that_rounds_once_passes(name: str, dtype: str, device: str) -> None:
    written = WRITTEN[name]
    found = verdicts(kernel(written), written.reference, name, dtype, device)
    assert [verdict.reason for verdict in found if verdict.verdict != "pass"] == []
    assert any("reference widened at " in note for verdict in found for note in verdict.notes)


@pytest.mark.sampled
@pytest.mark.parametrize("fault", FAULTS)
@each_dtype_once(*DTYPES, other="npu")
@pytest.mark.parametrize("name", WRITTEN)
def test_a_fault_is_found_as_with_dtypes_of_the_arguments(name: str, dtype: str, device: str, fault: str) -> None:
    written = WRITTEN[name]
    function = FAULTS[fault](written)
    found, plain = (verdicts(function, each, name, dtype, device)[0] for each in (written.reference, written.plain))
    assert found.verdict == plain.verdict
    assert found.verdict == "error"
