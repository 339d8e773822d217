"""probe.check(..., relations=...): a kernel of the user's own."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.support.writing import entries, write_dump

TEST = """
import torch
from tests.support import related

def reference(x):
    return torch.softmax(x, -1)

def kernel(x):
    return {kernel}

def test_it(probe):
    probe.check(kernel, reference=reference, inputs=[probe.tensor((6, 96), "{dtype}")], backward={backward}, {asked})
"""


def run(pytester: pytest.Pytester, kernel: str, asked: str, dtype: str = "float32", backward: bool = False,
        *options: str) -> pytest.RunResult:  # fmt: skip
    pytester.makepyfile(TEST.format(kernel=kernel, asked=asked, dtype=dtype, backward=backward))
    return pytester.runpytest(*options)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("backward", [False, True])
def test_a_healthy_kernel(pytester: pytest.Pytester, dtype: str, backward: bool) -> None:
    asked = 'relations=["batch", "order", "guard", "all-written", "again"], batch={"x": 0}'
    run(pytester, "torch.softmax(x, -1)", asked, dtype, backward, "--probe-strict").assert_outcomes(passed=1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("kernel", "relation"),
    [
        ("related.reads_behind_its_input(x, -1)", "guard"),
        ("related.splits_by_batch(x, -1)", "batch"),
    ],
)
def test_a_fault_fails_the_test(pytester: pytest.Pytester, kernel: str, relation: str, dtype: str) -> None:
    asked = f'relations=["{relation}"]' + (', batch={"x": 0}' if relation == "batch" else "")
    result = run(pytester, kernel, asked, dtype, False, "--probe-strict")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*relation.{relation} *"])


def test_a_dimension_that_is_not_there(pytester: pytest.Pytester) -> None:
    asked = 'relations=["batch"], batch={"x": 5}'
    result = run(pytester, "torch.softmax(x, -1)", asked, "float32", False, "--probe-out=out")
    result.assert_outcomes(passed=1)
    assert "x: a tensor of 2 dimensions has no dimension 5" in (pytester.path / "out/results.jsonl").read_text()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ('relations=["bacth"]', "check: relations: 'bacth' cannot be used; *did you mean batch?*"),
        ('relations=["guard"], batch={"x": 0}', "check: batch: *it is for relations=*"),
        ('relations=["batch"], batch={"x": "rows"}', "check: batch: *'rows'*give by argument a dimension*"),
        ('relations=["batch"], batch={"y": 0}', ""),
    ],
)
def test_what_cannot_be_asked(pytester: pytest.Pytester, asked: str, message: str) -> None:
    result = run(pytester, "torch.softmax(x, -1)", asked, "float32", False, "--probe-out=out")
    if message:
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines([f"*{message}"])
    else:
        result.assert_outcomes(passed=1)
        assert "the function has no tensor argument y" in (pytester.path / "out/results.jsonl").read_text()


BY_RECORD = """
import pytest, torch

@pytest.mark.probe(dump="dump.json", api="Functional.relu")
def test_it(probe_case):
    probe_case.check(torch.relu(*probe_case.args))
"""


def test_a_call_that_the_test_made_cannot_be_asked(pytester: pytest.Pytester) -> None:
    write_dump(pytester.path, entries("Functional.relu.0", F.relu, torch.rand(4, 6)))
    pytester.makepyfile(BY_RECORD)
    result = pytester.runpytest("--probe-relations=guard,again", "--probe-out=out")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["relation.again, 1 case: not checked", "relation.guard, 1 case: not checked"])
    assert "cannot be asked for another one" in (pytester.path / "out/results.jsonl").read_text()
