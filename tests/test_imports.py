"""What this package leaves alone until it needs it: pytest, gRPC, and a compiler, of which steps need none either:
tests/frameworks/torch/test_decompositions.py."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.pages import ROOT

# What runs in one new process, in this order, and what it must not import.
PARTS = {
    "gradients": (
        """
import torch
from pytest_probe.frameworks.torch.calls import backward
x = torch.ones(3, requires_grad=True)
backward([(x * x).sum(), x * 2], [x], [torch.ones(()), torch.ones(3)])
""",
        {"sympy", "torch._dynamo"},
    ),
    "a check of one line": (
        """
import pytest_probe
found = pytest_probe.check(torch.nn.functional.gelu, reference=torch.nn.functional.gelu, inputs=[torch.ones(8)])
assert repr(found).startswith("pass in float32: output.0 [8] float32, by noise")
""",
        {"pytest", "_pytest"},
    ),
    "streams": ("import pytest_probe.capture.debugger, pytest_probe.features.online.plugin", {"grpc"}),
}


@pytest.fixture(scope="module")
def imported() -> dict[str, list[str]]:
    """Of these modules the ones that are there behind each part."""
    known = set().union(*(modules for _, modules in PARTS.values()))
    program = "import json, sys\nimported = {}\n"
    for name, (code, _) in PARTS.items():
        program += f"{code}\nimported[{name!r}] = sorted({known!r} & sys.modules.keys())\n"
    command = [sys.executable, "-c", f"{program}print(json.dumps(imported))"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("name", PARTS)
def test_what_needs_a_module_alone_imports_it(imported: dict[str, list[str]], name: str) -> None:
    assert not PARTS[name][1] & {*imported[name]}
