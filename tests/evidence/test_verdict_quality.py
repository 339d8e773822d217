"""The benchmark of the verdicts: what counts as a wrong output, and what it prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.mutations import MUTATIONS, mutants
from benchmarks.quality import calls
from benchmarks.quality.devices import KINDS
from benchmarks.quality.samples import Wish
from benchmarks.quality.scoring import scored
from pytest_probe.standards import STANDARDS
from tests.support import forks
from tests.support.asking import comparison, normal
from tests.support.installed import needs_paddle

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "verdict_quality.py"


def names(actual: Any, expected: Any, **more: Any) -> set[str]:
    return {name for name, _ in mutants(comparison(actual, expected, **{"dtype": "float32", **more}), seed=0)}


def test_every_mutation_changes_an_ordinary_output() -> None:
    values = normal(4, 5)
    for dtype in ("float32", "bfloat16", "float16"):
        assert names(values, values, dtype=dtype) == set(MUTATIONS)


def test_what_leaves_a_right_answer_is_no_fault() -> None:
    assert names(np.zeros(4), np.zeros(4)) == set()
    assert names(np.full((4, 5), 2.0), np.full((4, 5), 2.0)) == {"one element", "scale", "noise", "unwritten row"}
    assert names(normal(4), normal(4), api="Torch.empty") == set()


def test_more_of_a_rounding_error_is_no_fault() -> None:
    errors = 1e-8 * normal(4, 5)
    assert names(errors, np.zeros((4, 5))) <= {"stale row", "shifted", "noise"}


def test_other_indices_of_the_same_values_are_right() -> None:
    values = np.array([[3.0, 3.0, 1.0]] * 3, np.float32)
    more: Any = {"api": "Torch.argmax", "args": (values, 1), "dtype": "int64"}
    assert names([0, 0, 0], np.array([0, 0, 0]), **more) == set()
    assert names([1, 1, 1], np.array([0, 0, 0]), **more) == {"one element"}


@pytest.mark.parametrize("kind", ["torch", "tf32"])
def test_the_table_counts_healthy_flagged_and_found_calls(kind: str, tmp_path: Path) -> None:
    options = ["--source=calls", f"--device-kind={kind}", "--dtypes=float32", "--api=Torch.mm", "--samples=2"]
    options += ["--alarms", "--missed"]
    printed = forks.run([str(SCRIPT), *options], tmp_path, os.environ)
    assert printed.returncode == 0, printed.stderr
    rows = [line.strip("| ").split(" | ") for line in printed.stdout.splitlines() if line.startswith("| calls")]
    assert [row[:4] for row in rows] == [["calls", kind, "float32", name] for name in STANDARDS]
    healthy, flagged, warned, mutated = rows[0][4:8]
    assert (healthy, flagged, warned) == ("6", "0", "0")
    assert 20 < int(mutated) <= 36
    # What is 0.1 % off in all elements, or 1 % in one of 16, is as large as TF32's own rounding of operands may be.
    hidden = ("scale", "noise", "Torch.mm 0 backward grad.input.1: one element") if kind == "tf32" else ()
    missed = [line for line in printed.stdout.splitlines() if line.startswith("- missed")]
    assert [line for line in missed if not line.endswith(hidden or "nothing")] == []


@needs_paddle
def test_the_table_has_rows_of_paddles_devices() -> None:
    kinds = ("paddle", "another name", "dropped term")
    options = ["--framework=paddle", "--dtypes=float32", "--api=paddle.mm", "--samples=2", "--standard=auto"]
    options += [f"--device-kind={kind}" for kind in kinds]
    printed = subprocess.run([sys.executable, str(SCRIPT), *options], capture_output=True, text=True)
    assert printed.returncode == 0, printed.stderr
    rows = [line.strip("| ").split(" | ") for line in printed.stdout.splitlines() if line.startswith("| calls")]
    assert [row[1] for row in rows] == list(kinds)
    assert [row[4:7] for row in rows] == [["6", "0", "0"], ["6", "0", "0"], ["0", "0", "0"]]
    assert [row[8] for row in rows[:2]] == ["100.0 %"] * 2
    assert rows[2][-1].startswith("100.0 % of ")


def test_gradients_of_factors_under_tf32() -> None:
    found = scored(KINDS["tf32"], calls.samples(Wish("float32", 9, "Torch.linalg.svd"))).scores["auto"]
    assert found.healthy > 3
    assert found.flagged == []
