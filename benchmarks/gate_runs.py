"""Does the gate fail healthy runs? `python benchmarks/gate_runs.py [RUNS]`: 20 runs take about 8 minutes of two cores.

Each run has another seed: a baseline of cases/gpt and of msprobe's dump of a CNN is written with one thread, and the
same cases run again with one thread or two, in one process or two (-n 2), in another order. Prints what the gate says
of each, and how many cases failed in all; the exit status is 1 where one did.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
RUNS = 20
# Reverses, and shuffles by the seed; forward and backward stay together, since the plugin puts them there.
CONFTEST = """
import os
import random

import pytest

@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    random.Random(os.environ["ORDER"]).shuffle(items)
"""


def dumps(folder: Path) -> None:
    """The GPT and the CNN, each in a folder."""
    shutil.copytree(ROOT / "cases/gpt", folder / "gpt")
    (folder / "cnn").mkdir()
    for packed in (ROOT / "tests/data/msprobe-26.2.0/cnn").glob("*.gz"):
        (folder / "cnn" / packed.name.removesuffix(".gz")).write_bytes(gzip.decompress(packed.read_bytes()))


def pytest(folder: Path, threads: int, order: int, *args: str) -> tuple[int, str]:
    """The exit status and the output of a run."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    dumps = ["--probe-dump=gpt", "--probe-dump=cnn", "--probe-baseline=base.jsonl"]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "ORDER": str(order)}
    done = subprocess.run([*command, *dumps, *args], cwd=folder, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def main() -> int:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dumps(folder)
        (folder / "conftest.py").write_text(CONFTEST)
        for seed in range(runs):
            (folder / "base.jsonl").unlink(missing_ok=True)
            status, text = pytest(folder, 1, 0, f"--probe-seed={seed}", "--probe-baseline-update")
            assert status == 0, text
            threads, workers = 1 + seed % 2, 2 if seed % 4 == 0 else 0
            status, text = pytest(folder, threads, seed + 1, f"--probe-seed={seed}", "-n", str(workers))
            gate = re.search(r"^probe: (gate: .*)$", text, re.MULTILINE)
            found = re.search(r"(\d+) failed", text)
            failed += int(found[1]) if found else int(status != 0)
            print(f"seed {seed}, OMP_NUM_THREADS {threads}, -n {workers}: {gate[1] if gate else text}", flush=True)
    print(f"{runs} healthy runs: {failed} failures of the gate")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
