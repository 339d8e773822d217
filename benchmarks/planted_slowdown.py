"""Is an operator that became 1.3 times slower found, and nothing else: `python benchmarks/planted_slowdown.py [RUNS]`.

10 healthy runs by default of a CNN's dump against a run of itself, with --probe-time-limit=1.15, and 10 in which each
conv2d goes on with its output until it took 1.3 times as long; all beside a process that keeps another core busy. It
prints which cases failed, and how many times the budget a case took.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
DUMP = ROOT / "tests/data/msprobe-26.2.0/cnn"
SPIN = "while True: pass"
FACTOR, LIMIT, BUDGET = 1.3, 1.15, 0.05
API = "Functional.conv2d"
PLANTED = f"""
from time import perf_counter

import torch

def conv2d(*args, **kwargs):
    began = perf_counter()
    result = torch.nn.functional.conv2d(*args, **kwargs)
    end, own = began + {FACTOR} * (perf_counter() - began), result.detach()
    while perf_counter() < end:
        own.add_(0)
    return result

def pytest_probe_register(registry):
    registry.calls["{API}"] = conv2d
"""


def run(folder: Path, name: str, *args: str) -> tuple[dict[str, str], float]:
    """The failures of a run, by case, and its seconds."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--probe-dump={DUMP}"]
    command += ["--probe-mode=time", f"--probe-time-budget={BUDGET}", f"--probe-out={name}", *args]
    began = time.perf_counter()
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    seconds = time.perf_counter() - began
    found = map(json.loads, (folder / name / "results.jsonl").read_text().splitlines())
    return {each["id"].split("::")[1]: each["reason"] for each in found if each["verdict"] == "error"}, seconds


def planted(folder: Path) -> list[str]:
    """The cases that are slower."""
    found = map(json.loads, (folder / "base" / "results.jsonl").read_text().splitlines())
    return [each["id"].split("::")[1] for each in found if each["api"] == API and each["direction"] == "forward"]


def told(title: str, runs: Sequence[dict[str, str]], wanted: Sequence[str]) -> None:
    """Print what the runs found of the cases that they should find, and what else failed."""
    whole = sum(all(name in failed for name in wanted) for failed in runs)
    others = [(number, name, why) for number, failed in enumerate(runs) for name, why in failed.items()]
    others = [each for each in others if each[1] not in wanted]
    if wanted:
        print(f"{title}: all of {len(wanted)} planted cases found in {whole} of {len(runs)} runs")
    print(f"{title}: {len(others)} others failed in {len(runs)} runs")
    for number, name, why in others:
        print(f"  run {number}: {name}: {why}")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    busy = subprocess.Popen([sys.executable, "-c", SPIN])
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            _, seconds = run(folder, "base")
            cases = len((folder / "base" / "results.jsonl").read_text().splitlines())
            beside = ("--probe-benchmark=base", f"--probe-time-limit={LIMIT}")
            healthy = [run(folder, f"healthy{number}", *beside)[0] for number in range(count)]
            slower = planted(folder)
            (folder / "conftest.py").write_text(PLANTED)
            found = [run(folder, f"planted{number}", *beside)[0] for number in range(count)]
    finally:
        busy.kill()
    each = seconds / cases / BUDGET
    print(f"{cases} cases, {each:.2f} times the budget each, with the start; load {os.getloadavg()[0]:.1f}")
    told("healthy", healthy, ())
    told(f"{API} {FACTOR} times slower", found, slower)


if __name__ == "__main__":
    main()
