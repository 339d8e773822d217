"""torch's own CPU kernels break no relation that is a fault: training steps of models of every kind."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pytest_probe import capture
from pytest_probe.check import Case, CaseOutcome, Checker, RunRequest
from pytest_probe.features.relations.checks import Relations
from pytest_probe.options import RELATION_NAMES
from pytest_probe.records import read_dump
from pytest_probe.registry import Registry
from tests.features.relations.conftest import found
from tests.support import models


@pytest.mark.evidence
@pytest.mark.parametrize("dtype", [None, "bfloat16"], ids=["recorded", "bfloat16"])
@pytest.mark.parametrize("name", models.ALL)
def test_a_training_step(tmp_path: Path, name: str, dtype: str | None) -> None:
    torch.manual_seed(0)
    step = models.ALL[name]()
    with capture(tmp_path) as recorder:
        for _ in range(2):
            step()
            recorder.step()
    dump = read_dump(next(tmp_path.glob("step1/*/dump.json")))
    checker = Checker(RunRequest(device="cpu"), Registry.default())
    relations, asked = Relations(checker, RELATION_NAMES), 0
    for record in dump.records:
        checked: CaseOutcome | None = None
        for direction in record.directions:
            checked = checker.run(Case(dump, record, direction, dtype), checked)
            verdicts = found(relations.of(checked).verdict)
            errors = {name: each.reason for name, each in verdicts.items() if each.verdict == "error"}
            assert errors == {}, checked.case.id
            asked += sum(each.verdict != "skip" for each in verdicts.values())
    assert asked > 50
