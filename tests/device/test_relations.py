"""Planted faults on an accelerator: each breaks its relation alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.device import pretend
from tests.device.conftest import ROOT
from tests.device.test_check import LOADED
from tests.support.related import FAULTS
from tests.support.writing import entries, write_dump

PLANTED = """
from tests.support.related import FAULTS

def pytest_probe_register(registry):
    registry.calls.update(FAULTS[NAME].calls())
"""


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_breaks_its_relation_alone(pytester: pytest.Pytester, library: Path, name: str) -> None:
    fault = FAULTS[name]
    data = entries(f"{fault.api}.0", fault.function, *fault.args(torch.float32))
    write_dump(pytester.path, data)
    loaded = LOADED.format(root=str(ROOT), library=str(library))
    pytester.makeconftest(f"{loaded}\nNAME = {name!r}\n{PLANTED}")
    pytester.runpytest_subprocess("--probe-dump=dump.json", "--probe-relations=all", "--probe-out=out")
    (line,) = (pytester.path / "out" / "results.jsonl").read_text().splitlines()
    result = json.loads(line)
    outputs = [output for output in result["outputs"] if output["name"].startswith("relation.")]
    assert result["device"].startswith(pretend.NAME)
    broken = {output["name"]: output["reason"] for output in outputs if output["verdict"] in ("warning", "error")}
    assert broken.keys() == {f"relation.{fault.relation}"}, outputs
