"""How often a planted fault's cause is named, and how often wrongly: `python benchmarks/causes.py [--names]`.

The faults of cases/kernels (those of random draws aside, whose judges name what is wrong themselves), each in its
first dtype with the CPU as the device. cases/kernels/causes_*.yaml says by what families
of causes each may fairly be called; a fault that is in none has no name that is right. The rules were made with the
open part in sight; of the closed part, every fourth fault was labelled before the rules met it.
"""

from __future__ import annotations

import argparse
import sys
import warnings
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
import yaml  # noqa: E402

from cases import kernels  # noqa: E402
from cases.kernels.entry import Entry  # noqa: E402
from cases.kernels.scoring import inputs  # noqa: E402
from pytest_probe.check import Checker, RunRequest  # noqa: E402
from pytest_probe.model.verdict import Diagnosis  # noqa: E402
from pytest_probe.registry import Registry  # noqa: E402

# Of the closed faults, one in so many has been labelled.
SAMPLE = 4


class Named(Struct, frozen=True):
    """A fault that was found, what it may be called, and what it was called."""

    entry: Entry
    fair: frozenset[str]
    found: Diagnosis | None

    @property
    def family(self) -> str:
        return self.found.family if self.found else ""

    @property
    def wrong(self) -> bool:
        return bool(self.family) and self.family not in self.fair


def named(part: str) -> Iterator[Named]:
    fair: dict[str, set[str]] = defaultdict(set)
    for family, names in yaml.safe_load(
        (ROOT / f"cases/kernels/causes_{part}.yaml").read_text(encoding="utf-8")
    ).items():
        for name in names:
            fair[name].add(family)
    for entry in kernels.entries(part):
        chosen = part == "open" or zlib.crc32(entry.name.encode()) % SAMPLE == 0
        if entry.fault and entry.family != "random" and chosen:
            found = diagnosed(entry)
            if found is not None:
                yield Named(entry, frozenset(fair[entry.name]), found[0])


def diagnosed(entry: Entry) -> tuple[Diagnosis | None] | None:
    """What the first output that failed is said to be; None for a fault that is not found."""
    torch.manual_seed(zlib.crc32(entry.name.encode()))
    checker = Checker(RunRequest(device="cpu", allow=entry.allow), Registry.default())
    verdicts = checker.compare(
        entry.kernel,
        entry.reference,
        inputs(entry, entry.dtypes[0]),
        api=entry.api,
        backward=entry.backward,
        key=f"{entry.family}.{entry.name}",
    )
    outputs = (output for verdict in verdicts for output in verdict.outputs if output.verdict == "error")
    failed = next(outputs, None)
    return None if failed is None else (failed.diagnosis,)


def row(part: str, found: list[Named]) -> str:
    count, wrong = sum(bool(item.family) for item in found), sum(item.wrong for item in found)
    counts = Counter(item.family for item in found if item.family)
    families = ", ".join(f"{name} {number}" for name, number in counts.most_common())
    share, among = count / len(found), wrong / max(count, 1)
    return f"| {part} | {len(found)} | {count} ({share:.1%}) | {wrong} ({among:.1%}) | {families} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="How often a planted fault's cause is named, and how often wrongly")
    parser.add_argument("--part", action="append", choices=("open", "closed"), help="repeatable; default: both")
    parser.add_argument("--names", action="store_true", help="list the faults that are called by another name")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print("| faults | found | named | of these wrong | families |\n|---|---|---|---|---|")
    below: list[str] = []
    for part in options.part or ("open", "closed"):
        found = list(named(part))
        print(row(part, found), flush=True)
        below += [
            f"- {item.entry.name} ({item.entry.fault}): {item.found.cause}"
            for item in found
            if item.wrong and item.found is not None
        ]
    print("\n" + "\n".join(below) if options.names else "")


if __name__ == "__main__":
    main()
