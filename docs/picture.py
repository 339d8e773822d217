"""Draws what the terminal shows of a merge with a planted fault (docs/failing.svg), and of the first test in
docs/asserts.md (docs/asserts.svg): `python docs/picture.py`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parent.parent
FAULT = """
import torch

right = torch.nn.functional.gelu

def gelu(x, approximate="none"):
    out = right(x, approximate=approximate)
    return out if x.dtype is torch.float64 else out * 1.0003

torch.nn.functional.gelu = gelu
"""
COMMAND = "pytest --probe-dump=gpt --probe-baseline=baseline.jsonl --probe-api=Functional.* -k 'not gelu.1'"

# What a reader sees who has this plugin alone.
ALONE = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p pytest_probe.plugin"}


def run() -> str:
    """The colours and words of a run with the fault, and with a baseline from before."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "cases" / "gpt", Path(folder, "gpt"))
        arguments = ["--probe-dump=gpt", "--probe-baseline=baseline.jsonl", "--probe-api=Functional.*"]
        pytest(folder, *arguments, "--probe-baseline-update")
        Path(folder, "conftest.py").write_text(FAULT, encoding="utf-8")
        return pytest(folder, *arguments, "-k", "not gelu.1").replace(folder, "~/model")


def run_assert() -> str:
    """The same of the first test in docs/asserts.md."""
    page = (ROOT / "docs" / "asserts.md").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        test = page.partition("```python\n")[2].partition("```")[0]
        Path(folder, "test_layer.py").write_text(test, encoding="utf-8")
        return pytest(folder, "test_layer.py", "--probe-asserts").replace(folder, "~/kernels")


def draw(name: str, command: str, shown: str, width: int) -> None:
    console = Console(record=True, width=width, file=open("/dev/null", "w", encoding="utf-8"))  # noqa: SIM115
    console.print(Text.from_ansi(f"$ {command}\n{shown}"))
    console.save_svg(str(ROOT / "docs" / name), title="pytest-probe")


def pytest(folder: str, *arguments: str) -> str:
    """What a run prints."""
    command = [sys.executable, "-m", "pytest", "--color=yes", "-p", "no:cacheprovider", "-W", "ignore", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=ALONE)
    return done.stdout


if __name__ == "__main__":
    draw("failing.svg", COMMAND, run(), 112)
    draw("asserts.svg", "pytest test_layer.py --probe-asserts", run_assert(), 80)
