"""Does --probe-against write what ptdbg_ascend's compare() wrote? Its tables, cell by cell.

    python benchmarks/ptdbg_compare.py FOLDER

FOLDER holds cases at any depth: folders with `dev`, `ref` and a folder `compare*` with compare_result.csv and, where
the tool gave advice, advisor.txt. Tables of 2.3 and 4.0 are told apart by their columns. Exits with 1 where a cell
differs.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

NAME = "NPU Name"
# Differing cells that are printed.
FEW = 5
# What the tool's own slip writes of a row without a counterpart: the letters of "Nan" as name, dtype and shape.
SLIP = ("N", "a", "n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    wrong = [case for case in cases(parser.parse_args().folder.resolve()) if not compared(*case)]
    return int(bool(wrong))


def cases(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Each case with the tool's table."""
    for table in sorted(folder.rglob("compare*/compare_result*.csv")):
        case = table.parent.parent
        if (case / "dev").is_dir() and (case / "ref").is_dir():
            yield case, table


def compared(case: Path, table: Path) -> bool:
    """Print how our table of a case differs from the tool's; does no cell?"""
    header, theirs = read(table)
    # 4.0 knows a norm.
    release = "4.0" if "NPU l2norm" in header else "2.3"
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary, "out")
        run(case, out, "ptdbg" if release == "4.0" else "ptdbg-2.3")
        own_header, ours = read(out / f"compare_result_ptdbg_{release}.csv")
        advice = (out / "advisor.txt").read_text() if (out / "advisor.txt").exists() else ""
    lost = [name for name in ours if name not in theirs]
    missing = [name for name in theirs if name not in ours]
    slips = [name for name, row in theirs.items() if tuple(row.get(key) for key in sides("Bench")) == SLIP]
    both = [name for name in theirs if name in ours and name not in slips]
    cells = [(name, key, theirs[name][key], ours[name].get(key)) for name in both for key in header]
    differing = [cell for cell in cells if cell[2] != cell[3]]
    equal = len(cells) - len(differing)
    print(f"{case}: ptdbg {release}, {len(theirs):,} rows, {equal:,} cells equal, {len(differing):,} differ")
    if own_header != header:
        print(f"  the header differs: {own_header}")
    if [name for name in ours if name in theirs] != [name for name in theirs if name in ours]:
        print("  the order of rows differs")
    for name, key, their, our in differing[:FEW]:
        print(f"  {name}, {key}: {their!r}, ours {our!r}")
    for words, names in (("that the tool lost", lost), ("that we have not", missing), ("of the tool's slip", slips)):
        if names:
            print(f"  {len(names):,} rows {words}: {', '.join(names[:FEW])}")
    told = next(iter(table.parent.glob("advisor*.txt")), None)
    same_advice = (told.read_text() if told is not None else "") == advice
    print(f"  advice {'equal' if same_advice else f'differs: {advice!r}'}")
    return not differing and own_header == header and not missing and same_advice


def sides(side: str) -> tuple[str, ...]:
    return f"{side} Name", f"{side} Tensor Dtype", f"{side} Tensor Shape"


def read(path: Path) -> tuple[list[str], dict[str, dict[str, str]]]:
    """The header, and the rows by their names; of a name that occurs twice, "#1" and so on."""
    csv.field_size_limit(1 << 30)
    seen = Counter[str]()
    rows = {}
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        for row in reader:
            name = row[NAME]
            rows[f"{name}#{seen[name]}" if seen[name] else name] = row
            seen[name] += 1
        return list(reader.fieldnames or ()), rows


def run(case: Path, out: Path, standard: str) -> None:
    options = [f"--probe-dump={case / 'dev'}", f"--probe-against={case / 'ref'}", f"--probe-standard={standard}"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, f"--probe-out={out}"]
    done = subprocess.run(command, cwd=out.parent, capture_output=True, text=True, check=False)
    if not (out / "results.jsonl").exists():
        raise SystemExit(f"{case}: the run failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


if __name__ == "__main__":
    sys.exit(main())
