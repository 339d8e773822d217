"""The real tools and ours on the same tensors and the same files: how often do they say the same? `make conformance`.

    python -m tests.conformance.live PYTHON ...

Each PYTHON has a release of mindstudio-probe and torch; ours is the one that runs this. Prints a table, and every row
that differs for no known reason; the exit status is 1 where there is one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch

from tests.conformance.agreement import Agreement
from tests.conformance.live import captured, comparisons, drawn, golden, record_sets, tensors
from tests.conformance.live.tool import Tool

# A check runs the tool in its folder and says how it agrees, under the name of what was compared.
Check = Callable[[Tool], Mapping[str, Agreement]]
CHECKS: tuple[Check, ...] = (
    tensors.check,
    drawn.check,
    comparisons.check,
    captured.check,
    record_sets.check,
    golden.check,
)
SHOWN = 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", metavar="PYTHON", nargs="+")
    given = parser.parse_args()
    # As the tools' processes: sums on other numbers of threads differ in their last digits.
    torch.set_num_threads(1)
    unlike: list[str] = []
    reasons: list[str] = []
    print("| tool | check | rows | agree | explained | unlike |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        for tool in [Tool.of(python, Path(name).resolve()) for python in given.pythons]:
            for what, found in _checked(tool):
                counts = f"{found.rows:,} | {found.alike:,} | {found.slips.total():,} | {len(found.unlike):,}"
                print(f"| msprobe {tool.release} | {what} | {counts} |", flush=True)
                reasons += [f"{tool.release}, {what}: {count:,} rows: {why}" for why, count in found.slips.items()]
                unlike += [f"{tool.release}, {what}: {row}" for row in found.unlike[:SHOWN]]
    print("\nexplained:", *reasons, sep="\n  ")
    print("\nunlike, the first of each check:", *unlike, sep="\n  ")
    return 1 if unlike else 0


def _checked(tool: Tool) -> Iterator[tuple[str, Agreement]]:
    for check in CHECKS:
        yield from check(tool).items()


if __name__ == "__main__":
    sys.exit(main())
