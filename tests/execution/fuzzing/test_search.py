"""Searches for planted faults, and among healthy kernels."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.fuzzing.faults import FAULTS, Fault
from benchmarks.fuzzing.running import checker, found, search, size
from pytest_probe import frameworks
from pytest_probe.execution.fuzzing.finding import finding, verdict_of
from pytest_probe.execution.fuzzing.search import Effort, Search
from pytest_probe.execution.fuzzing.trial import Target
from pytest_probe.inputs.fuzz.patterns import Pattern
from pytest_probe.inputs.fuzz.templates import Template, TensorSlot

# One search each takes seconds; benchmarks/fuzz_faults.py makes ten, and those of the others.
QUICK = [fault for fault in FAULTS if fault.smallest is not None and fault.smallest <= 2]


@pytest.mark.parametrize("device", ["cpu", "emulated"])
@pytest.mark.parametrize("fault", QUICK, ids=lambda fault: fault.name)
def test_a_fault_is_found_and_shrunk(fault: Fault, device: str) -> None:
    (findings,) = found(fault, device, [1], 200)
    assert findings.failed is not None
    assert fault.smallest is not None
    assert size(fault, device, findings) <= 2 * fault.smallest


@pytest.mark.parametrize("api", ["Functional.softmax", "Torch.exp", "Functional.linear", "Functional.embedding"])
def test_healthy_kernels_have_no_findings(api: str) -> None:
    findings = search(checker(), api, "float32", 60, seed=3)
    assert findings.failed is None
    assert not findings.contracts
    assert findings.examples >= 60


def test_the_script_of_a_finding_needs_the_framework_alone(tmp_path: Path) -> None:
    fault = FAULTS[1]
    (findings,) = found(fault, "cpu", [1], 200)
    faulty = checker(fault.api, fault.kernel)
    target = Target(fault.api, frameworks.DEFAULT, "x.fuzz", Path("table"), ("forward",))
    shown = finding(faulty, faulty, target, findings)
    assert shown is not None
    verdict = verdict_of(findings, shown, "auto", strict=False)
    assert verdict.verdict == "error"
    assert verdict.reason.startswith("log1p(float32[")
    file = tmp_path / "again.py"
    file.write_text(shown.script, encoding="utf-8")
    run = subprocess.run([sys.executable, file], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert run.stdout.startswith("actual\n")
    assert len(shown.script.splitlines()) < 30


def test_a_broken_contract_fails_under_strict_alone() -> None:
    def in_order(input: torch.Tensor) -> torch.Tensor:
        return input.exp().contiguous()

    findings = search(checker("Torch.exp", in_order), "Torch.exp", "float32", 60, seed=1)
    assert findings.failed is None
    assert any("strides" in contract for contract in findings.contracts)
    assert verdict_of(findings, None, "auto", strict=False).verdict == "pass"
    assert verdict_of(findings, None, "auto", strict=True).verdict == "error"


def test_a_search_whose_calls_are_all_rejected_is_a_skip() -> None:
    slots = {name: TensorSlot(Pattern.of("3 4")) for name in ("input", "other")}
    template = Template("Torch.mm", frameworks.signatures(), slots)
    target = Target("Torch.mm", frameworks.DEFAULT, "Torch.mm.fuzz", Path("table"), ("forward",))
    findings = Search(checker(), target, [template]).run(Effort(20))
    verdict = verdict_of(findings, None, "auto", strict=False)
    assert verdict.verdict == "skip"
    assert "rejects every call that was drawn" in verdict.reason
    assert "mat1 and mat2" in verdict.reason


def test_each_call_has_a_time_limit_of_its_own() -> None:
    entered: list[int] = []

    @contextmanager
    def limited() -> Iterator[None]:
        entered.append(1)
        yield

    template = Template("Torch.relu", frameworks.signatures(), {"input": TensorSlot(Pattern.of("3 4"))})
    target = Target("Torch.relu", frameworks.DEFAULT, "Torch.relu.fuzz", Path("table"), ("forward",))
    findings = Search(checker(), target, [template], limited).run(Effort(20))
    assert len(entered) == findings.examples >= 20


def test_a_reference_of_the_project_that_raises_is_a_finding() -> None:
    def raises(input: Any) -> Any:
        raise ValueError("not today")

    faulty = checker("Torch.exp", torch.exp)
    faulty.registry.references["Torch.exp"] = raises
    findings = search(faulty, "Torch.exp", "float32", 20, seed=1)
    assert findings.failed is not None
