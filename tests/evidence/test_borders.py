"""Pipelines of kernels that round to 16 bit between two of them pass where those borders are named, and their faults
are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_probe.check import Checker, RunRequest
from pytest_probe.model.verdict import Verdict
from pytest_probe.registry import Registry
from tests.evidence.pipelines import PIPELINES, normal
from tests.support.devices import Emulated

pytestmark = pytest.mark.usefixtures("no_causes")
DEVICES, DTYPES = ("cpu", "npu"), ("bfloat16", "float16")
PLACES = pytest.mark.parametrize(("dtype", "device"), [("bfloat16", "cpu"), ("bfloat16", "npu"), ("float16", "npu")])
FAULTS = [(name, fault) for name, pipeline in PIPELINES.items() for fault in pipeline.faults]


def checker(device: str) -> Checker:
    registry = Registry.default()
    registry.devices["npu"] = Emulated
    return Checker(RunRequest(device=device), registry)


def verdicts(
    name: str, dtype: str, device: str, *, fault: str = "", named: bool = True, backward: bool = False, seed: int = 0
) -> tuple[Verdict, ...]:
    pipeline, checks = PIPELINES[name], checker(device)
    given = pipeline.inputs(torch.Generator().manual_seed(seed), getattr(torch, dtype))
    how: dict[str, Any] = {"borders": pipeline.bordered(checks.border)} if named else {}
    function = pipeline.function(**pipeline.faults.get(fault, {}))
    return checks.compare(function, pipeline.reference, given, key=name, backward=backward, **how)


# What they round is no operand of a product.
NAMED_ALONE = ("cross-entropy of rounded logits",)
# Their backward divides by what they round.
FORWARD_ALONE = ("gated linear attention",)
NAMED = pytest.mark.parametrize("named", [True, False], ids=["named borders", "rounded operands"])


@PLACES
@NAMED
@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_passes(name: str, named: bool, dtype: str, device: str) -> None:
    if named or name not in NAMED_ALONE:
        found = verdicts(name, dtype, device, named=named, backward=named or name not in FORWARD_ALONE)
        assert [verdict.reason for verdict in found if verdict.verdict != "pass"] == []


@PLACES
@NAMED
@pytest.mark.parametrize(("name", "fault"), FAULTS)
def test_its_faults_do_not(name: str, fault: str, named: bool, dtype: str, device: str) -> None:
    (found,) = verdicts(name, dtype, device, fault=fault, named=named)
    assert found.verdict == "error"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scaled", [False, True], ids=["a sum of products", "a recurrence"])
def test_what_a_recurrence_hands_on_may_be_16_bit_and_a_plain_sum_may_not(
    scaled: bool, dtype: str, device: str
) -> None:
    narrow, factor = getattr(torch, dtype), 0.9 if scaled else 1.0

    def accumulated(
        x: torch.Tensor, weight: torch.Tensor, step: Callable[[torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        total = torch.zeros(x.shape[1], weight.shape[2], dtype=x.dtype, device=x.device)
        for part, factors in zip(x, weight, strict=True):
            total = step((total * factor if scaled else total) + part @ factors)
        return total

    def kernel(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return accumulated(x.float(), weight.float(), lambda tensor: tensor.to(narrow).float()).to(narrow)

    def reference(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return accumulated(x.float(), weight.float(), lambda tensor: tensor).to(narrow)

    generator = torch.Generator().manual_seed(0)
    given = [normal(generator, narrow, 32, 24, 16), normal(generator, narrow, 32, 16, 40)]
    (found,) = checker(device).compare(kernel, reference, given, key="sum")
    assert found.verdict == ("pass" if scaled else "error")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_cross_entropy_of_rounded_logits_is_an_error_without_that_border(dtype: str, device: str) -> None:
    (found,) = verdicts("cross-entropy of rounded logits", dtype, device, named=False)
    assert found.verdict == "error"


@pytest.mark.parametrize("device", DEVICES)
def test_a_named_border_changes_nothing_of_a_pipeline_that_passes_without(device: str) -> None:
    first, second = (verdicts("flash attention", "bfloat16", device, named=named)[0] for named in (True, False))
    assert first.outputs[0].metrics == second.outputs[0].metrics
