"""What --probe-compile costs: `python benchmarks/compile_cost.py [--backend inductor] [--dump DUMP]`.

The calls of a dump go through a compiler, forward and backward, on the CPU and in a process of their own: without a
compiler, with one and an empty folder of --probe-cache, and with what that run left there. Printed are the cases, how
many of them compiled something, the CPU time of each run with that of its start, and its share of the first compiled
one.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.check_speed import cost  # noqa: E402

OPTIONS = ["-p", "pytest_probe.plugin", "-p", "no:cacheprovider", "-c", os.devnull, "-q", "--probe-device=cpu"]
# Below this a case found what another one had compiled.
LOOKED_UP = 0.005


def run(folder: Path, dump: Path, *options: str) -> tuple[float, list[dict[str, object]]]:
    """CPU seconds of a run, with those of compilers that it starts, and its results."""
    out = folder / f"out{len(list(folder.iterdir()))}"
    command = [sys.executable, "-m", "pytest", *OPTIONS, f"--probe-dump={dump}", f"--probe-out={out}", *options]
    found = cost(folder, command, ROOT)
    return found.seconds, [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--dump", type=Path, default=ROOT / "cases/gpt")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        eager, _ = run(folder, options.dump.resolve())
        compiled = (f"--probe-compile={options.backend}", f"--probe-cache={folder / 'cache'}")
        first, results = run(folder, options.dump.resolve(), *compiled)
        second, again = run(folder, options.dump.resolve(), *compiled)
    counts = Counter(str(each["verdict"]) for each in results)
    made = sum(each["answers"][0]["totals"]["seconds"] > LOOKED_UP for each in results if "answers" in each)  # type: ignore[index]
    print(f"{len(results)} cases by {options.backend}: {', '.join(f'{n} {verdict}' for verdict, n in counts.items())}")
    print(f"cases that compiled something: {made}")
    changed = sum(a["verdict"] != b["verdict"] for a, b in zip(results, again, strict=True))
    print(f"verdicts that are others in the second run: {changed}")
    for words, seconds in (("without a compiler", eager), ("first run", first), ("second run", second)):
        print(f"{words}: {seconds:.1f} s of CPU time, {seconds / first:.2f} of the first compiled run")


if __name__ == "__main__":
    main()
