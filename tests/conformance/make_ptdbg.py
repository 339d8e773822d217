"""Write ptdbg.npz and ptdbg.json: tensors of two ptdbg_ascend dumps and what its compare() printed for them.

    python tests/conformance/make_ptdbg.py DEVICE BENCHMARK COMPARE_RESULT.csv

DEVICE and BENCHMARK are the folders with the .npy files. Kept are the rows with numbers whose tensors differ and are
small, and a few that are equal.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
COLUMNS = ("Cosine", "MaxAbsErr", "MaxRelativeErr", "One Thousandth Err Ratio", "Five Thousandths Err Ratio")
LARGEST, EQUAL = 4096, 5


def main() -> None:
    device, benchmark, table = map(Path, sys.argv[1:])
    arrays, rows, equal = {}, {}, 0
    for row in csv.DictReader(table.read_text().splitlines()):
        name, sides = row["NPU Name"], (device / f"{row['NPU Name']}.npy", benchmark / f"{row['Bench Name']}.npy")
        if row["Cosine"] in ("unsupported", "N/A", "Nan", "shape unmatched") or not all(map(Path.exists, sides)):
            continue
        first, second = map(np.load, sides)
        same = np.array_equal(first, second)
        if first.size > LARGEST or (same and equal == EQUAL):
            continue
        equal += same
        arrays[f"{name}/device"], arrays[f"{name}/benchmark"] = first, second
        rows[name] = {column: row[column] for column in COLUMNS}
    np.savez_compressed(HERE / "ptdbg.npz", **arrays)
    (HERE / "ptdbg.json").write_text(json.dumps(rows, indent=1) + "\n")
    print(f"{len(rows)} rows, {equal} of equal tensors")


if __name__ == "__main__":
    main()
