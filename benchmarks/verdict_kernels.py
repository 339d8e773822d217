"""How the verdicts on healthy and faulty kernels turn out: `python benchmarks/verdict_kernels.py [--closed] [--names]`.

The kernels are those of cases/kernels: healthy ones as a good engineer ships them, and faults with one defect
each. Every one runs in float32, bfloat16 and float16 where it applies, as the CPU's and as another device's. The open
part runs; --closed takes the closed part instead, which those who change the rule read only when it stands. --names
lists the entries with another verdict than expected. The script ends with 1 where an entry crashes, or where its own
check finds an entry wrong: a healthy kernel that is not its reference in float64, a fault that changes nothing.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from cases import kernels  # noqa: E402
from cases.kernels.entry import ALL, DEVICES  # noqa: E402
from cases.kernels.scoring import CRASH, Found, scored, short, troubles  # noqa: E402

VERDICTS = ("error", "warning", "pass", "skip", CRASH)


def table(found: list[Found]) -> list[str]:
    """By dtype and device: what became of faults and of healthy kernels."""
    columns = [f"{kind}: {verdict}" for kind in ("faults", "healthy") for verdict in VERDICTS]
    lines = [f"| dtype | device | {' | '.join(columns)} |", f"|---|---|{'---|' * len(columns)}"]
    for dtype in (*map(short, ALL), ""):
        for device in DEVICES if dtype else ("",):
            chosen = [item for item in found if dtype in ("", item.dtype) and device in ("", item.device)]
            cells = [
                cell for healthy in (False, True) for cell in _cells([i for i in chosen if i.entry.healthy is healthy])
            ]
            lines.append(f"| {dtype or 'all'} | {device or 'both'} | {' | '.join(cells)} |")
    return lines


def _cells(found: list[Found]) -> list[str]:
    counts = Counter(item.verdict for item in found)
    return [f"{counts[name]} ({counts[name] / len(found):.1%})" if counts[name] else "0" for name in VERDICTS]


def by_family(found: list[Found]) -> list[str]:
    """A line a family: how many runs went as expected."""
    lines = ["| family | faults: error | healthy: pass |", "|---|---|---|"]
    for family in dict.fromkeys(item.entry.family for item in found):
        cells = []
        for healthy in (False, True):
            runs = [item for item in found if item.entry.family == family and item.entry.healthy is healthy]
            cells.append(f"{sum(item.expected for item in runs)} of {len(runs)}")
        lines.append(f"| {family} | {' | '.join(cells)} |")
    return lines


def unexpected(found: list[Found]) -> list[str]:
    lines = []
    for item in found:
        if not item.expected and item.verdict != CRASH:
            kind = "healthy" if item.entry.healthy else f"fault ({item.entry.fault})"
            place = f"{item.dtype} on {item.device}"
            lines.append(f"{item.verdict}: {item.entry.family}: {item.entry.name}, {place}, {kind}: {item.reason}")
    return lines


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Verdicts on healthy and faulty kernels")
    parser.add_argument("--closed", action="store_true", help="the closed part in place of the open one")
    parser.add_argument("--family", action="append", default=[], help="only this family; may be given again")
    parser.add_argument("--names", action="store_true", help="list the entries with an unexpected verdict")
    parser.add_argument("--check", action="store_true", help="only the entries' own check, without the rule")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    start = time.process_time()
    part = "closed" if options.closed else "open"
    every = kernels.entries(part)
    entries = [entry for entry in every if not options.family or entry.family in options.family]
    healthy = sum(entry.healthy for entry in entries)
    print(f"{part}: {healthy} healthy kernels, {len(entries) - healthy} faults")
    wrong = list(troubles(entries))
    for line in wrong:
        print(f"wrong entry: {line}")
    if options.check:
        sys.exit(1 if wrong else 0)
    found = list(scored(entries))
    crashes = [item for item in found if item.verdict == CRASH]
    for item in crashes:
        print(f"crash: {item.entry.family}: {item.entry.name}, {item.dtype} on {item.device}: {item.reason}")
    for lines in (table(found), by_family(found), unexpected(found) if options.names else []):
        print("\n".join(["", *lines]) if lines else "", end="\n" if lines else "")
    print(f"\n{len(found)} runs, {time.process_time() - start:.0f} s of CPU")
    sys.exit(1 if wrong or crashes else 0)


if __name__ == "__main__":
    main()
