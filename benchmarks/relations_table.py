"""Which relations hold here: `python benchmarks/relations_table.py [DTYPE...]` (recorded and bfloat16 by default).

All relations are asked of the calls of cases/gpt and of two training steps of a small CNN, forward and backward, on the
CPU. Printed are the table of `batch` and `order` by API and dtype, and in how many cases
each relation holds, is broken, or cannot be asked.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from pytest_probe import capture
from tests.support import models

ROOT = Path(__file__).parent.parent
ROWS = ("relation.batch", "relation.order")


def cnn(folder: Path) -> Path:
    """A dump of two training steps."""
    torch.manual_seed(0)
    step = models.cnn()
    with capture(folder) as recorder:
        for _ in range(2):
            step()
            recorder.step()
    return next(folder.glob("step1/*/dump.json"))


def asked(dumps: list[Path], dtypes: str, folder: Path) -> list[dict[str, Any]]:
    """The rows of answers.json. Each run is a process of its own."""
    given = [f"--probe-dump={dump}" for dump in dumps]
    options = ["--probe-relations=all", f"--probe-dtype={dtypes}", f"--probe-out={folder}", "-q", "-p", "no:randomly"]
    done = subprocess.run([sys.executable, "-m", "pytest", *given, *options], cwd=ROOT, capture_output=True, text=True)
    print(done.stdout.splitlines()[-1])
    found: list[dict[str, Any]] = json.loads((folder / "answers.json").read_text())["answers"]
    return found


def main() -> None:
    dtypes = ",".join(sys.argv[1:]) or "recorded,bfloat16"
    with tempfile.TemporaryDirectory() as name:
        rows = asked([ROOT / "cases/gpt/dump.json", cnn(Path(name) / "cnn")], dtypes, Path(name) / "out")
    print(f"torch {torch.__version__}, {platform.machine()}, {torch.get_num_threads()} threads\n")
    print("| API | dtype | `batch` | `order` |\n|---|---|---|---|")
    by_rows = {(row["api"], row["dtype"]) for row in rows if row["question"] in ROWS and _asked(row)}
    for api, dtype in sorted(by_rows):
        cells = (_cell(rows, name, api, dtype) for name in ROWS)
        print(f"| {api} | {dtype} | {' | '.join(cells)} |")
    print("\n| relation | holds | broken | not checked |\n|---|---|---|---|")
    for name in dict.fromkeys(row["question"] for row in rows):
        counts = Counter[str]()
        for row in rows:
            if row["question"] == name:
                counts.update(row["outcomes"])
        shown = name.removeprefix("relation.")
        print(f"| `{shown}` | {counts['kept']} | {counts['broken']} | {counts['not checked']} |")


def _asked(row: dict[str, Any]) -> int:
    return sum(row["outcomes"].get(outcome, 0) for outcome in ("kept", "broken"))


def _cell(rows: list[dict[str, Any]], name: str, api: str, dtype: str) -> str:
    own = [row for row in rows if (row["question"], row["api"], row["dtype"]) == (name, api, dtype)]
    asked = sum(map(_asked, own))
    return f"{sum(row['outcomes'].get('kept', 0) for row in own)} of {asked}" if asked else ""


if __name__ == "__main__":
    main()
