"""What a run that times a whole dump costs: `python benchmarks/timer_cost.py [SECONDS]` (0.05).

The seconds of all items of cases/gpt in --probe-mode=time, as multiples of the budget, and those of the whole run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent


def main() -> None:
    budget = float(sys.argv[1]) if len(sys.argv) > 1 else 0.05
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--probe-dump={ROOT / 'cases/gpt'}"]
        command += ["--probe-mode=time", f"--probe-time-budget={budget}", "--probe-out=out"]
        began = time.perf_counter()
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        subprocess.run(command, cwd=name, env=env, stdout=subprocess.DEVNULL, check=True)
        whole = time.perf_counter() - began
        found = list(map(json.loads, (Path(name) / "out" / "results.jsonl").read_text().splitlines()))
    items = sum(each["duration"] for each in found)
    each = budget * len(found)
    print(f"{len(found)} items, {budget:g} s each, load {os.getloadavg()[0]:.1f}")
    print(f"items: {items:.1f} s, {items / each:.2f} times the budget")
    print(f"the whole run: {whole:.1f} s, {whole / each:.2f} times the budget")


if __name__ == "__main__":
    main()
