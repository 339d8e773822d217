"""Kernels in C that end their process, hang or fail: each is one result, and every other case has its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import forward, tensor
from tests.device.conftest import ROOT
from tests.device.test_check import LOADED

FAULTS = """
import torch

def pytest_probe_register(registry):
    registry.calls["Functional.relu"] = lambda x: torch.ops.pretend.fault(x)
"""
# By the number of rows, as in pretend.cpp.
FOUND = {
    1: ("pass", ""),
    2: ("error", "crash"),
    3: ("error", "crash"),
    4: ("error", "crash"),
    5: ("error", "timeout"),
    6: ("skip", "out of memory"),
    7: ("error", ""),
    8: ("error", ""),
    9: ("pass", ""),
}
SAID = {2: "by SIGSEGV", 3: "by SIGABRT", 4: "with exit status 3", 5: "ended by --probe-timeout"}


def results(pytester: pytest.Pytester, folder: str) -> dict[str, dict[str, Any]]:
    lines = (pytester.path / folder / "results.jsonl").read_text().splitlines()
    found = [{**json.loads(line), "duration": 0} for line in lines]
    assert len({result["id"] for result in found}) == len(found)
    return {result["id"]: result for result in found}


@pytest.mark.parametrize("how", [["--probe-isolate"], ["-n", "2"]], ids=["isolated", "workers"])
def test_each_fault_is_one_result(pytester: pytest.Pytester, library: Path, how: list[str]) -> None:
    data = {f"Functional.relu.{rows}.forward": forward(tensor(rows, 3), output=tensor(rows, 3)) for rows in FOUND}
    data |= {f"Functional.gelu.{rows}.forward": forward(tensor(rows, 3), output=tensor(rows, 3)) for rows in FOUND}
    header = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    (pytester.path / "dump.json").write_text(json.dumps({**header, "data": data}))
    loaded = LOADED.format(root=str(ROOT), library=str(library))
    pytester.makeconftest(loaded)
    pytester.runpytest_subprocess("--probe-dump=dump.json", "--probe-out=healthy")
    pytester.makeconftest(loaded + FAULTS)
    limit = "--probe-timeout=20"
    pytester.runpytest_subprocess("--probe-dump=dump.json", "--probe-out=faulty", limit, *how)
    healthy, faulty = results(pytester, "healthy"), results(pytester, "faulty")
    assert healthy.keys() == faulty.keys()
    for name, result in faulty.items():
        rows = int(name.split(".")[-2])
        if "gelu" in name:
            assert result == healthy[name]
        else:
            assert (result["verdict"], result["kind"]) == FOUND[rows], result["reason"]
            assert SAID.get(rows, "") in result["reason"]
