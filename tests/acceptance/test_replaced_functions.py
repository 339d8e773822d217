"""A function that the project has put into the place of one of torch's is under test; the reference is torch's own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.support import forks
from tests.support.writing import entries, write_dump

ARGS = ("-m", "pytest", "-p", "no:cacheprovider", "--probe-dump=dump.json", "--probe-device=cpu", "-rA")

# Each replaces what the calls below call.
FAULTS = {
    "gelu": "F.gelu = lambda x, approximate='none': x * torch.sigmoid(1.6 * x)",
    "layer_norm": "F.layer_norm = lambda x, *args: torch.layer_norm(x, *args) * 1.01",
    "max_pool2d": "F.max_pool2d = lambda x, size: torch.nn.functional.avg_pool2d(x, size)",
    "add": "torch.add = lambda x, y: torch.sub(x, -1.01 * y)",
    "svdvals": "torch.linalg.svdvals = lambda x: torch.linalg.svd(x)[1] * 1.01",
    "sin": "torch.Tensor.sin = lambda x: torch.sin(x) * 1.01",
    "norm": "torch.Tensor.norm = lambda x: torch.linalg.norm(x) * 1.01",
    # What torch's own function calls, or another name of it.
    "softmax": "torch.Tensor.softmax = lambda x, dim: torch.softmax(x, dim) * 1.01",
    "relu": "F.relu = torch.Tensor.sigmoid",
}
TRACED = """
    import functools
    def traced(function):
        @functools.wraps(function)
        def through(*args, **kwargs):
            return function(*args, **kwargs)
        return through
    for owner, names in (
        (F, "gelu layer_norm max_pool2d relu softmax"), (torch, "add"), (torch.Tensor, "sin norm softmax to"),
    ):
        for name in names.split():
            setattr(owner, name, traced(getattr(owner, name)))
    F.gelu = functools.partial(F.gelu)
"""
HEAD = "import torch, torch.nn.functional as F\n"


def calls() -> Iterator[dict[str, Any]]:
    x = torch.linspace(-3, 3, 60).reshape(6, 10)
    yield entries("Functional.gelu.0", F.gelu, x, backward=True)
    yield entries("Functional.layer_norm.0", F.layer_norm, x, (10,), backward=True)
    yield entries("Functional.max_pool2d.0", F.max_pool2d, x.reshape(1, 1, 6, 10), 2)
    yield entries("Torch.add.0", torch.add, x, x.flip(0), backward=True)
    yield entries("Torch.linalg.svdvals.0", torch.linalg.svdvals, x.sin())
    yield entries("Tensor.sin.0", torch.Tensor.sin, x, backward=True)
    yield entries("Tensor.norm.0", torch.Tensor.norm, x)
    yield entries("Functional.softmax.0", F.softmax, x, 1)
    yield entries("Functional.relu.0", F.relu, x)
    yield entries("Torch.mul.0", torch.mul, x, x)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_dump(tmp_path, {name: entry for call in calls() for name, entry in call.items()})
    return tmp_path


def run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return forks.run([*ARGS, *args], folder, {**os.environ, "PYTHONPATH": str(folder)})


def failed(ran: subprocess.CompletedProcess[str]) -> set[str]:
    """The APIs of the items that failed."""
    lines = (line for line in ran.stdout.splitlines() if line.startswith("FAILED"))
    return {line.partition("::")[2].split(".0.")[0].rpartition(".")[2] for line in lines}


def test_each_fault_fails_and_nothing_else(folder: Path) -> None:
    (folder / "conftest.py").write_text(HEAD + "\n".join(FAULTS.values()))
    ran = run(folder)
    assert failed(ran) == set(FAULTS)
    assert "Functional.gelu.0.forward in float32 by conftest.py:2: error" in ran.stdout
    said = "functions of its own (Functional.gelu is conftest.py:2's, Functional.layer_norm is conftest.py:3's, "
    assert f"probe: this process has set: {said}" in ran.stdout


def test_a_fault_from_before_pytest_probe(folder: Path) -> None:
    (folder / "sitecustomize.py").write_text(HEAD + "\n".join(FAULTS.values()))
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, *ARGS]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert failed(ran) == set(FAULTS)


def test_wrappers_that_call_through_pass(folder: Path) -> None:
    (folder / "conftest.py").write_text(HEAD + textwrap.dedent(TRACED))
    ran = run(folder, "--probe-strict", "--probe-dtype=recorded,bfloat16")
    assert ran.returncode == 0, ran.stdout
    assert "and 7 more); references run without it" in ran.stdout


def test_a_function_that_stands_on_both_sides_is_told(folder: Path) -> None:
    """Nobody has torch's own: its source file is not there."""
    (folder / "conftest.py").write_text(f"{HEAD}F.__file__ = 'nowhere.py'\n{FAULTS['layer_norm']}")
    ran = run(folder)
    said = "Functional.layer_norm is conftest.py:3's, on both sides"
    assert ran.stdout.splitlines().count(f"probe: {said}") == 1
    assert failed(ran) == set()
    assert ran.stdout.count(said) >= 3  # with the results of both directions
    assert "2 warned" in ran.stdout
