from __future__ import annotations

import os
from pathlib import Path

from tests.support import forks

CODE = """
import sys, torch
from pytest_probe.frameworks.torch.rounding import StepsMode
import torch._dynamo
twice = torch.compile(lambda x: x * 2.0, backend='eager')
mode = StepsMode(torch.bfloat16, fine=False)
x = torch.full((4,), 1 / 3, dtype=torch.float64)
with mode:
    y = twice(x + 0.0)
assert y[0].item() == float(torch.tensor(1 / 3).bfloat16()) * 2, y
"""


def test_a_compiled_function_runs_under_a_mode(tmp_path: Path) -> None:
    done = forks.run(["-c", CODE], tmp_path, os.environ)
    assert done.returncode == 0, done.stderr
