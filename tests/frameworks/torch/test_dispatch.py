"""Modes that see kernels do not import torch's compiler, and are left alone by it where it is there."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys, torch
from pytest_probe.frameworks.torch.rounding import StepsMode
{before}
mode = StepsMode(torch.bfloat16, fine=False)
x = torch.full((4,), 1 / 3, dtype=torch.float64)
with mode:
    y = {call}
assert y[0].item() == float(torch.tensor(1 / 3).bfloat16()) * 2, y
print("torch._dynamo" in sys.modules)
"""
COMPILED = "import torch._dynamo; twice = torch.compile(lambda x: x * 2.0, backend='eager')"


def printed(before: str, call: str) -> str:
    code = CODE.format(before=before, call=call)
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_a_mode_imports_no_compiler() -> None:
    # + 0: a step that reads the third, so that it is rounded.
    assert printed("", "(x + 0.0) * 2.0") == "False"


def test_a_compiled_function_runs_under_a_mode() -> None:
    assert printed(COMPILED, "twice(x + 0.0)") == "True"
