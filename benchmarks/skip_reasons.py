"""Why cases of real dumps are skipped on the CPU, as the table of docs/evidence.md.

    python benchmarks/skip_reasons.py [--by-dump] DIR...

Every case of every dump of PyTorch below the folders is checked. For each kind of skip: how many cases, in how many
dumps, and the first reason, without its file. With --by-dump: what became of the cases of each dump.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, field

from pytest_probe.check import Case, CaseOutcome, Checker, RunRequest
from pytest_probe.model.dump import Dump
from pytest_probe.model.verdict import Verdict
from pytest_probe.records import find_dumps, read_dump
from pytest_probe.registry import Registry

JUDGED = ("pass", "warning", "error")


class Kind(Struct):
    """One kind of skip."""

    cases: int = 0
    dumps: set[Path] = field(default_factory=set)
    example: str = ""


def verdicts(dump: Dump) -> Iterator[Verdict]:
    """The verdict on every case of a dump, in the recorded dtypes."""
    checker = Checker(RunRequest(device="cpu", workers=os.cpu_count() or 1), Registry.default())  # one thread
    for record in dump.records:
        checked: CaseOutcome | None = None
        for direction in record.directions:
            checked = checker.run(Case(dump, record, direction), checked)
            yield checked.verdict


def rows(outcomes: Counter[str], kinds: dict[str, Kind], dumps: int) -> Iterator[str]:
    said = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.most_common())
    yield f"{dumps:,} dumps, {outcomes.total():,} cases: {said} ({outcomes['skip'] / outcomes.total():.2%} skipped)"
    yield ""
    yield "| kind | cases | dumps | example |"
    yield "|---|---:|---:|---|"
    for name, kind in sorted(kinds.items(), key=lambda item: -item[1].cases):
        yield f"| {name} | {kind.cases:,} | {len(kind.dumps):,} | {kind.example.replace('|', '&#124;')} |"


def by_dump(found: list[Dump]) -> Iterator[str]:
    """One row a dump, and one for all."""
    yield "| dump | cases | passed | warnings | errors | skipped |"
    yield "|---|---:|---:|---:|---:|---|"
    total: Counter[str] = Counter()
    for dump in found:
        counts: Counter[str] = Counter()
        for verdict in verdicts(dump):
            counts[verdict.kind if verdict.verdict == "skip" else verdict.verdict] += 1
        total += counts
        yield _row("/".join(dump.path.parts[-4:-1]), counts)
    yield _row("all", total)


def _row(name: str, counts: Counter[str]) -> str:
    skips = ", ".join(f"{counts[kind]:,} {kind}" for kind in sorted(counts.keys() - set(JUDGED)))
    judged = " | ".join(f"{counts[outcome]:,}" for outcome in JUDGED)
    return f"| {name} | {counts.total():,} | {judged} | {skips or 0} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="DIR", type=Path, help="a folder of dumps, or a dump")
    parser.add_argument("--by-dump", action="store_true", help="a row for each dump")
    outcomes: Counter[str] = Counter()
    kinds: defaultdict[str, Kind] = defaultdict(Kind)
    options = parser.parse_args()
    found = [read_dump(path) for folder in options.folders for path in find_dumps(folder)]
    found = [dump for dump in found if dump.framework == "pytorch" and dump.records]
    if options.by_dump:
        print("\n".join(by_dump(found)))
        return
    for dump in found:
        for verdict in verdicts(dump):
            outcomes[verdict.verdict] += 1
            if verdict.verdict == "skip":
                kind = kinds[verdict.kind]
                kind.cases += 1
                kind.dumps.add(dump.path)
                kind.example = kind.example or verdict.reason.replace(f"{dump.path}: ", "", 1)
    print("\n".join(rows(outcomes, kinds, len(found))))


if __name__ == "__main__":
    main()
