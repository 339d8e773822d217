"""The same training steps recorded by our capture and by msprobe's, replayed on the CPU side by side, as a table.

    python benchmarks/capture_replay.py [--msprobe PYTHON] [--task statistics|tensor]

The models are those of tests/support/models.py, two steps of each. --msprobe names an interpreter that has
mindstudio-probe 26 and torch; without it ours alone are shown. Cases are forward and backward calls.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from tests.support.models import ALL  # noqa: E402

STEPS = 2


def record(debugger: Any, model: str) -> None:
    """Two steps of a model, the same whoever records them."""
    torch.manual_seed(1234)
    step = ALL[model]()
    for _ in range(STEPS):
        debugger.start()
        step()
        debugger.stop()
        debugger.step()


def ours(folder: Path, task: str) -> None:
    from pytest_probe import PrecisionDebugger

    for model in ALL:
        record(PrecisionDebugger(dump_path=folder / model, task=task), model)


def theirs(folder: Path, task: str, model: str) -> None:
    """In a process of msprobe's, which has one debugger."""
    from msprobe.pytorch import PrecisionDebugger

    path = folder / f"{model}.json"
    told = {"task": task, "dump_path": str(folder / model), "rank": [], "step": [], "level": "L1", "risk_level": "ALL"}
    path.write_text(json.dumps({**told, task: {"scope": [], "list": [], "data_mode": ["all"]}}))
    record(PrecisionDebugger(config_path=str(path)), model)


def outcomes(folder: Path) -> Counter[str]:
    """What becomes of the cases of all dumps in a folder; skips by their kinds."""
    from benchmarks.skip_reasons import verdicts
    from pytest_probe.records import find_dumps, read_dump

    found = (verdict for path in find_dumps(folder) for verdict in verdicts(read_dump(path)))
    return Counter(verdict.kind if verdict.verdict == "skip" else verdict.verdict for verdict in found)


def row(model: str, who: str, counts: Counter[str]) -> str:
    judged = [counts.pop(outcome, 0) for outcome in ("pass", "warning", "error")]
    skips = ", ".join(f"{count} {kind}" for kind, count in counts.most_common()) or "0"
    cells = (model, who, *(f"{count:,}" for count in (sum(judged) + counts.total(), *judged)), skips)
    return f"| {' | '.join(cells)} |"


def rows(folder: Path, told: argparse.Namespace) -> Iterator[str]:
    yield "| model | recorded by | cases | passed | warnings | errors | skipped |"
    yield "|---|---|---:|---:|---:|---:|---|"
    ours(folder / "ours", told.task)
    (folder / "theirs").mkdir()
    for model in ALL:
        yield row(model, "ours", outcomes(folder / "ours" / model))
        if told.msprobe:
            again = [told.msprobe, __file__, "--inside", str(folder / "theirs"), model, "--task", told.task]
            subprocess.run(again, check=True, capture_output=True)
            yield row(model, "msprobe", outcomes(folder / "theirs" / model))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--msprobe", metavar="PYTHON", help="an interpreter that has mindstudio-probe 26")
    parser.add_argument("--task", default="statistics", choices=("statistics", "tensor"))
    parser.add_argument("--inside", nargs=2, help=argparse.SUPPRESS)
    told = parser.parse_args()
    torch.set_num_threads(1)
    if told.inside:
        theirs(Path(told.inside[0]), told.task, told.inside[1])
        return
    with tempfile.TemporaryDirectory() as folder:
        for line in rows(Path(folder), told):
            print(line, flush=True)


if __name__ == "__main__":
    main()
