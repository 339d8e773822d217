"""What an item costs that fails: `python benchmarks/failing_items.py [--repeats N] [--copies N] [--then CHECKOUT]`.

The dump repeats the records of cases/gpt, so that more than 50 errors of most APIs are met. Each device runs it in a
process of its own: the CPU by another name, a device whose results are 1.001 times too large, and one that leaves the
last eighth of each result zero. Told are CPU milliseconds an item, once everything is imported: the first items of
each API, whose causes are looked for with runs of the reference, and all others; and how many times as much that is as
on the device that is right. With --then the same of another checkout, in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.same_results import CONFTEST  # noqa: E402

TOLD = "FAILING_ITEMS_TOLD"
DEVICES = ("other", "scaled", "tail")
COPIES = 4
# Errors of one API whose causes are looked for with runs: pytest_probe.plugin.session.WHOLE_DIAGNOSES.
WHOLE = 50
OPTIONS = ("-p", "pytest_probe.plugin", "-p", "benchmarks.failing_items", "-p", "no:cacheprovider", "-q", "--tb=no")
BEGUN: list[tuple[str, float]] = []


def pytest_runtest_logstart(nodeid: str) -> None:
    """As a plugin: note when each item begins."""
    BEGUN.append((nodeid.rpartition("::")[2], time.process_time()))


def pytest_unconfigure() -> None:
    if TOLD in os.environ:
        ends = [*(begun for _, begun in BEGUN[1:]), time.process_time()]
        told = [(name, end - begun) for (name, begun), end in zip(BEGUN, ends, strict=True)]
        Path(os.environ[TOLD]).write_text(json.dumps(told))


def write_dump(path: Path, copies: int = COPIES) -> None:
    """The step of cases/gpt, several times, with new call numbers."""
    source = json.loads((ROOT / "cases/gpt/dump.json").read_text())
    found = {}
    for copy in range(copies):
        for entry, body in source["data"].items():
            call, number, direction = entry.rsplit(".", 2)
            found[f"{call}.{int(number) + 1000 * copy}.{direction}"] = body
    path.write_text(json.dumps({**source, "data": found}))


def run(folder: Path, checkout: Path, device: str) -> list[tuple[str, float]]:
    """Each item's name and CPU seconds."""
    told = folder / "told.json"
    # The checkout's package, and this plugin, whichever checkout that is.
    shutil.rmtree(folder / "plugins", ignore_errors=True)
    (folder / "plugins" / "benchmarks").mkdir(parents=True)
    for name in ("failing_items.py", "same_results.py"):
        shutil.copy(ROOT / "benchmarks" / name, folder / "plugins" / "benchmarks" / name)
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": f"{folder / 'plugins'}{os.pathsep}{checkout}",
        TOLD: str(told),
    }
    command = [sys.executable, "-m", "pytest", *OPTIONS, "--probe-dump=dump.json", f"--probe-device={device}"]
    subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=False)
    found: list[tuple[str, float]] = json.loads(told.read_text())
    return found


def split(items: list[tuple[str, float]]) -> tuple[float, float]:
    """Mean CPU milliseconds of the first errors of each API, and of those behind them."""
    seen: Counter[str] = Counter()
    first: list[float] = []
    rest: list[float] = []
    for index, (name, seconds) in enumerate(items):
        api = name.rsplit(".", 2)[0]
        seen[api] += 1
        # What the first items import is none of their cost.
        if index >= 100:
            (first if seen[api] <= WHOLE else rest).append(seconds)
    return 1e3 * statistics.mean(first), 1e3 * statistics.mean(rest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="runs of each (default: 3)")
    parser.add_argument(
        "--copies", type=int, default=COPIES, help=f"how often the step is repeated (default: {COPIES})"
    )
    parser.add_argument("--then", type=Path, metavar="CHECKOUT", help="another checkout to compare with")
    given = parser.parse_args()
    checkouts = {"now": ROOT, **({"then": given.then.resolve()} if given.then else {})}
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        write_dump(folder / "dump.json", given.copies)
        (folder / "conftest.py").write_text(CONFTEST)
        (folder / "pytest.ini").write_text("[pytest]\n")
        for _ in range(given.repeats):
            for when, checkout in checkouts.items():
                for device in DEVICES:
                    found.setdefault((when, device), []).append(split(run(folder, checkout, device)))
    for (when, device), costs in found.items():
        right = found[when, DEVICES[0]]
        for part, words in enumerate((f"first {WHOLE} of an API", "further ones")):
            values = [cost[part] for cost in costs]
            ratios = [cost[part] / other[1] for cost, other in zip(costs, right, strict=True)]
            print(
                f"{when:<5} {device:<7} {words:<20} {statistics.median(values):7.2f} ms "
                f"({min(values):.2f} to {max(values):.2f}), {statistics.median(ratios):5.1f} times "
                f"({min(ratios):.1f} to {max(ratios):.1f}) an item that passes",
                flush=True,
            )


if __name__ == "__main__":
    main()
