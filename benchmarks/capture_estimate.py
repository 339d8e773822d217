"""What `pytest-probe capture --estimate` says of a step, and what captures of that step then take, as a Markdown table.

    python benchmarks/capture_estimate.py [--framework paddle]

The step is the second one of a GPT (d = 256, 4 layers, T = 128, B = 4) and of a tiny one (d = 32, 2 layers, T = 16,
B = 2), on one thread of the CPU. Each capture is a process of its own; estimates and captures take turns, and medians
of five are shown. The exit status is 1 where an estimate of `tensor` is off by more than 5 % in bytes, or for the GPT
by 30 % in seconds.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROGRAM = """
import importlib, sys
sys.path.insert(0, {benchmarks!r})
steps = importlib.import_module("overhead.{framework}")
step = steps.training(*{size})
step()
step()
"""
SIZES = {"tiny GPT": (64, 32, 4, 2, 16, 2), "GPT": (512, 256, 8, 4, 128, 4)}
COMMAND = "import sys; from pytest_probe.cli import main; sys.exit(main())"
COST = re.compile(r"([\d.,]+) (TB|GB|MB|kB|bytes), ([\d.,]+) s a step")
UNITS = {"bytes": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
# Of estimates and captures, which take turns.
TURNS = 5
# Shares by which an estimate of `tensor` may be off.
BYTES, SECONDS = 0.05, 0.30


def captured(program: Path, *options: str) -> str:
    """What a capture of the second step says."""
    command = [sys.executable, "-c", COMMAND, "capture", "--step=1", *options, str(program)]
    done = subprocess.run(command, cwd=program.parent, capture_output=True, text=True, env=environment())
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stderr


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def cost(text: str) -> tuple[float, float]:
    """Bytes and seconds of a line."""
    found = COST.search(text)
    assert found is not None, text
    return float(found[1].replace(",", "")) * UNITS[found[2]], float(found[3].replace(",", ""))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--framework", default="pytorch", choices=["pytorch", "paddle"])
    framework = parser.parse_args().framework
    print("| step | task | estimate | taken | bytes | seconds |\n|---|---|---|---|---|---|")
    beyond = False
    for name, size in SIZES.items():
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "train.py"
            program.write_text(PROGRAM.format(benchmarks=str(ROOT / "benchmarks"), framework=framework, size=size))
            for task in ("structure", "statistics", "tensor"):
                said, taken = [], []
                for _ in range(TURNS):
                    lines = captured(program, "--estimate").splitlines()
                    said.append(cost(next(line for line in lines if f"--task={task}:" in line)))
                    taken.append(cost(captured(program, f"--task={task}", "--overwrite", "-o", task)))
                middle = [statistics.median(each) for each in (*zip(*said, strict=True), *zip(*taken, strict=True))]
                off = middle[0] / middle[2] - 1, middle[1] / middle[3] - 1
                words = " | ".join(
                    f"{size / 1e6:,.1f} MB, {seconds:.2g} s" for size, seconds in (middle[:2], middle[2:])
                )
                print(f"| {name} | {task} | {words} | {off[0]:+.1%} | {off[1]:+.0%} |", flush=True)
                late = name == "GPT" and abs(off[1]) > SECONDS
                beyond |= task == "tensor" and (abs(off[0]) > BYTES or late)
    return int(beyond)


if __name__ == "__main__":
    sys.exit(main())
