"""Runs of pytest with --probe-relations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.support.related import FAULTS
from tests.support.running import by_case
from tests.support.writing import entries, write_dump

CONFTEST = """
from tests.support.related import FAULTS

def pytest_probe_register(registry):
    registry.calls.update(FAULTS[{name!r}].calls())
"""


def faulty(pytester: pytest.Pytester, name: str, others: Mapping[str, Any] = {}) -> None:
    """A dump with the call of a fault, twice, and other entries, and a conftest that plants it."""
    fault = FAULTS[name]
    args = fault.args(torch.float32)
    data = {**entries(f"{fault.api}.0", fault.function, *args), **entries(f"{fault.api}.1", fault.function, *args)}
    write_dump(pytester.path, {**data, **others})
    pytester.makeconftest(CONFTEST.format(name=name))


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    return pytester.runpytest("--probe-dump=dump.json", *options)


def test_an_error_fails_its_items(pytester: pytest.Pytester) -> None:
    """In a process that nobody replaces the page is not asked for, and the header says so."""
    faulty(pytester, "write before", entries("Torch.sin.0", torch.sin, torch.rand(4, 5)))
    result = run(pytester, "--probe-relations=guard,all-written", "--probe-out=out")
    result.assert_outcomes(failed=2, passed=1)
    result.stdout.fnmatch_lines(
        [
            "probe: guard looks for reads beyond a page only where *: add --probe-isolate or -n",
            "relation.guard [[]6, 96[]] float32: error (relations): input.0: written 1 element*",
            "to reproduce: pytest 'dump.json::Functional.relu.?.forward' --probe-relations=guard,all-written",
            "relation.all-written, 3 cases: 3 kept",
            "relation.guard, 3 cases: 2 broken, 1 kept; the ends of pages were not asked in*",
            "  Functional.relu float32 forward: 2 broken",
        ]
    )
    answers = json.loads((pytester.path / "out/answers.json").read_text())["answers"]
    assert [answer for answer in answers if answer["api"] == "Functional.relu"] == [
        {"question": f"relation.{name}", "api": "Functional.relu", "dtype": "float32", "direction": "forward",
         "cases": 2, "outcomes": {outcome: 2}, "shares": {"holds": [holds, 2]}, "totals": {}, "most": {},
         "messages": {}}
        for name, outcome, holds in (("all-written", "kept", 2), ("guard", "broken", 0))
    ]  # fmt: skip


# A worker asks the ends of pages.
TOLD = {"batch": "2 broken, 1 not checked", "guard": "3 kept", "order": "2 kept, 1 not checked"}


def test_a_warning_passes_and_rows_of_the_projects_count(pytester: pytest.Pytester) -> None:
    faulty(pytester, "split", entries("Functional.relu.0", F.relu, torch.rand(4, 5)))
    with (pytester.path / "conftest.py").open("a") as conftest:
        conftest.write("\n    registry.relations['Functional.relu'] = {'batch': {'input': 9}}\n")
    result = run(pytester, "--probe-relations=batch,order,guard", "--probe-out=out", "-n2")
    assert result.parseoutcomes() == {"passed": 1, "warned": 2}
    result.stdout.fnmatch_lines([f"relation.{name}, 3 cases: {told}" for name, told in TOLD.items()])
    outputs = {each["name"]: each for each in by_case()["Functional.softmax.0.forward"]["outputs"]}
    batch = outputs["relation.batch"]
    assert (outputs["output.0"]["verdict"], batch["verdict"]) == ("pass", "warning")
    assert batch["metrics"]["elements"] == 96
    assert 0 < batch["metrics"]["apart"] <= 96
    assert {element["ulp"] for element in batch["worst"]} <= {1.0, 2.0, 3.0, 4.0}
    # msprobe's files have outputs of calls alone.
    details = next((pytester.path / "out").glob("*details*.csv")).read_text(encoding="utf-8-sig")
    assert details.count("Functional.softmax.0") == 1


READS_ON = """
import ctypes, torch

def reads_on(x, inplace=False):
    end = x.data_ptr() + x.numel() * x.element_size()
    ctypes.string_at(end + -end % 64, 1)
    return torch.relu(x)

def pytest_probe_register(registry):
    registry.calls["Functional.relu"] = reads_on
"""


@pytest.mark.usefixtures("forked")
def test_a_read_beyond_the_page_is_a_death_that_names_the_argument(pytester: pytest.Pytester) -> None:
    faulty(pytester, "write before")
    pytester.makeconftest(READS_ON)
    result = pytester.runpytest_subprocess("--probe-dump=dump.json", "--probe-relations=guard", "--probe-isolate")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        ["*the process died by SIGSEGV while the device ran it: guard: input.0 at the end of a page*"]
    )
    result.stdout.no_fnmatch_line("probe: guard looks for*")


def test_the_gate_holds_what_held(pytester: pytest.Pytester) -> None:
    gate = ("--probe-baseline=base.jsonl", "--probe-relations=batch,guard")
    faulty(pytester, "split")
    conftest = pytester.path / "conftest.py"
    planted = conftest.read_text()
    conftest.unlink()
    run(pytester, *gate, "--probe-baseline-update").assert_outcomes(passed=2)
    conftest.write_text(planted)
    result = run(pytester, *gate)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*the relation batch held, now it does not*"])
    run(pytester, "--probe-baseline=other.jsonl", "--probe-baseline-update").assert_outcomes(passed=2)
    assert "failed" not in run(pytester, "--probe-baseline=other.jsonl", "--probe-relations=batch").parseoutcomes()


# One unit more where there are few rows.
BY_BATCH = """
import torch

def softplus(x, beta=1.0, threshold=20.0):
    y = torch._C._nn.softplus(x, beta, threshold)
    return y if x.ndim == 0 or x.shape[0] > 2 else y * (1 + 2.0**-23)
"""


def test_a_search_finds_and_shrinks_a_fault_and_tells_properties_as_contracts(pytester: pytest.Pytester) -> None:
    """A healthy API breaks none."""
    softplus = entries("Functional.softplus.0", F.softplus, torch.rand(4, 5))
    faulty(pytester, "write before", {**softplus, **entries("Torch.sin.0", torch.sin, torch.rand(4, 5))})
    conftest = (pytester.path / "conftest.py").read_text()
    pytester.makeconftest(f"{BY_BATCH}\n{conftest}\n    registry.calls['Functional.softplus'] = softplus")
    asked = "--probe-relations=batch,all-written,guard,out,inplace,alias,layout"
    result = run(pytester, "--probe-fuzz=30", "--hypothesis-seed=1", asked)
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines(
        [
            "relation.guard [[]1[]] float32: error (relations): input.0: written 1*",
            "FAILED *Functional.relu.fuzz - relu(float32[[]1[]]): relation.guard: in*",
            "contracts, which fail with *",
            "    softplus(float32[[]*[]]*): relation.batch: dimension 0: *",
        ]
    )
    result.stdout.no_fnmatch_line("    sin(*")
