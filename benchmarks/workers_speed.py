"""What -n costs and from when on it pays: `python benchmarks/workers_speed.py [--repeats N] [--then CHECKOUT]`.

Runs of the same items by one process and by two workers, in turn, each with the CPU and wall time of all its processes:
the step of cases/gpt ten times, and as many empty tests, which tell what pytest-xdist itself costs an item. Printed are
medians with the spread, and the ratio of CPU time. With --then the same of another checkout.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import failing_items  # noqa: E402

ITEMS, COPIES = 3_220, 10
OPTIONS = ("-p", "xdist.plugin", "-p", "no:cacheprovider", "-p", "no:randomly", "-q", "-c", os.devnull)
PROBE = ("-p", "pytest_probe.plugin", "--probe-device=cpu", "--probe-dump=dump.json")


class Cost(NamedTuple):
    """Seconds."""

    cpu: float
    wall: float


def run(folder: Path, checkout: Path, *args: str) -> Cost:
    """CPU time of all processes, and wall time."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": str(checkout),
    }
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "pytest", *OPTIONS, *args]
    subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(cpu, time.perf_counter() - begun)


def told(values: list[float], unit: str = "s") -> str:
    return f"{statistics.median(values):.2f} {unit} ({min(values):.2f} to {max(values):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="runs of each (default: 3)")
    parser.add_argument("--then", type=Path, metavar="CHECKOUT", help="another checkout to compare with")
    given = parser.parse_args()
    checkouts = {"now": ROOT, **({"then": given.then.resolve()} if given.then else {})}
    found: dict[tuple[str, str, str], list[Cost]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        failing_items.write_dump(folder / "dump.json", COPIES)
        empty = f"import pytest\n@pytest.mark.parametrize('n', range({ITEMS}))\ndef test_nothing(n): pass\n"
        (folder / "test_empty.py").write_text(empty)
        for _ in range(given.repeats):
            for when, checkout in checkouts.items():
                for workers in ("-n0", "-n2"):
                    found.setdefault((when, "cases", workers), []).append(run(folder, checkout, *PROBE, workers))
            for workers in ("-n0", "-n2"):
                found.setdefault(("", "empty tests", workers), []).append(run(folder, ROOT, "test_empty.py", workers))
    for (when, what, workers), costs in found.items():
        cpu, wall = ([getattr(cost, kind) for cost in costs] for kind in Cost._fields)
        print(f"{when:<5} {what:<12} {workers}  CPU {told(cpu)}, wall {told(wall)}", flush=True)
    for when in checkouts:
        pairs = zip(found[when, "cases", "-n2"], found[when, "cases", "-n0"], strict=True)
        print(f"{when:<5} -n2 over one process, CPU: {told([two.cpu / one.cpu for two, one in pairs], 'times')}")
    own = [
        1e3 * (two.cpu - one.cpu) / ITEMS
        for two, one in zip(found["", "empty tests", "-n2"], found["", "empty tests", "-n0"], strict=True)
    ]
    print(f"pytest-xdist's own cost of an empty test: {told(own, 'ms')} of CPU")


if __name__ == "__main__":
    main()
