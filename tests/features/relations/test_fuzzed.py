"""--probe-fuzz with --probe-relations: what breaks on drawn calls is a finding, and is shrunk."""

from __future__ import annotations

import pytest
import torch

from tests.features.relations.test_relations import faulty
from tests.support.writing import entries, write_dump

# One unit more where there are few rows.
BY_BATCH = """
import torch

def tanh(x):
    y = torch.tanh(x)
    return y if x.ndim == 0 or x.shape[0] > 2 else y * (1 + 2.0**-23)

def pytest_probe_register(registry):
    registry.calls["Torch.tanh"] = tanh
"""


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    return pytester.runpytest("--probe-dump=dump.json", "--probe-fuzz=30", "--hypothesis-seed=1", *options)


def test_a_fault_is_found_and_shrunk(pytester: pytest.Pytester) -> None:
    faulty(pytester, "write before")
    result = run(pytester, "--probe-relations=guard")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "relation.guard [[]1[]] float32: error (relations): input.0: written 1*",
            "FAILED *Functional.relu.fuzz - relu(float32[[]1[]]): relation.guard: in*",
        ]
    )


def test_a_property_is_a_contract(pytester: pytest.Pytester) -> None:
    write_dump(pytester.path, entries("Torch.tanh.0", torch.tanh, torch.rand(4, 5)))
    pytester.makeconftest(BY_BATCH)
    result = run(pytester, "--probe-relations=batch")
    assert "failed" not in result.parseoutcomes()
    result.stdout.fnmatch_lines(
        ["contracts, which fail with *", "    tanh(float32[[]*[]]): relation.batch: dimension 0: *"]
    )


def test_a_healthy_api_breaks_none(pytester: pytest.Pytester) -> None:
    faulty(pytester, "write before")
    (pytester.path / "conftest.py").unlink()
    result = run(pytester, "--probe-relations=all-written,guard,out,inplace,alias,layout")
    result.assert_outcomes(passed=1)
