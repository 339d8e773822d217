"""Planted faults on an accelerator: each breaks its relation alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.device import pretend
from tests.device.conftest import ROOT
from tests.device.test_check import LOADED
from tests.support.related import FAULTS
from tests.support.running import ran
from tests.support.writing import entries, write_dump

# Each dump's calls are those of the fault that it is named after.
PLANTED = """
import pytest
import torch
from tests.support.related import FAULTS

healthy = {fault.api: fault.function for fault in FAULTS.values()} | {"Functional.relu_": torch.relu_}
faulty = {name: fault.calls() for name, fault in FAULTS.items()}
running = {}

@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    running.update(healthy | faulty[item.path.parent.name])
    return (yield)

def pytest_probe_register(registry):
    for api in healthy:
        registry.calls[api] = lambda *args, api=api, **kwargs: running[api](*args, **kwargs)
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, library: Path) -> dict[str, dict[str, Any]]:
    """By the name of the fault."""
    folder = tmp_path_factory.mktemp("relations")
    for name, fault in FAULTS.items():
        (folder / name).mkdir()
        write_dump(folder / name, entries(f"{fault.api}.0", fault.function, *fault.args(torch.float32)))
    (folder / "conftest.py").write_text(LOADED.format(root=str(ROOT), library=str(library)) + PLANTED)
    dumps = [f"--probe-dump={name}/dump.json" for name in FAULTS]
    rows = ran(folder, *dumps, "--probe-relations=all", "--probe-out=out").rows
    return {row["id"].partition("/")[0]: row for row in rows}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_breaks_its_relation_alone(results: dict[str, dict[str, Any]], name: str) -> None:
    result = results[name]
    outputs = [output for output in result["outputs"] if output["name"].startswith("relation.")]
    assert result["device"].startswith(pretend.NAME)
    broken = {output["name"]: output["reason"] for output in outputs if output["verdict"] in ("warning", "error")}
    assert broken.keys() == {f"relation.{FAULTS[name].relation}"}, outputs
