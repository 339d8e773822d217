"""Planted faults that recorded ranges miss: in how many of ten searches each is found, and how far it is shrunk.

python -m benchmarks.fuzz_faults [seeds] [examples]
"""

from __future__ import annotations

import statistics
import sys

from benchmarks.fuzzing.faults import FAULTS
from benchmarks.fuzzing.running import found, size


def main(seeds: int = 10, examples: int = 200) -> None:
    print(f"{'fault':<26} {'device':<9} {'found':>6} {'calls':>6} {'shrunk to':>10} {'smallest':>9}")
    for fault in FAULTS:
        for device in ("cpu", "emulated"):
            every = found(fault, device, range(seeds), examples)
            hits = [each for each in every if each.failed is not None]
            sizes = sorted(size(fault, device, each) for each in hits)
            smallest = fault.smallest if fault.smallest is not None else min(sizes, default=0)
            calls = statistics.median(each.found_after for each in hits) if hits else float("nan")
            shrunk = f"{sizes[0]}..{sizes[-1]}" if sizes else ""
            line = f"{fault.name:<26} {device:<9} {len(hits):>3}/{seeds} {calls:>6.0f} {shrunk:>10} {smallest:>9}"
            print(line, flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
