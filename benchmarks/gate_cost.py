"""What the gate costs: `python benchmarks/gate_cost.py [CASES]` (2,000 by default).

CPU time of a run with a baseline beside that of the same run without, the least of several rounds in turns, since what
else the machine does only adds to it; and the size of the baseline. The cases are those of cases/gpt, repeated.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROUNDS = 3
BASELINE = "--probe-baseline=base.jsonl"


def write_dump(folder: Path, count: int) -> None:
    """A dump of so many cases: the records of the GPT, under further call numbers."""
    dump = json.loads((ROOT / "cases/gpt/dump.json").read_text())
    entries = {key: value for key, value in dump["data"].items() if not key.startswith("Module.")}
    data: dict[str, object] = {}
    step = 1000
    while len(data) < count:
        shift = step * (len(data) // len(entries))
        for key, value in entries.items():
            if len(data) < count:
                name, number, direction = key.rsplit(".", 2)
                data[f"{name}.{int(number) + shift}.{direction}"] = value
    (folder / "dump.json").write_text(json.dumps({**dump, "data": data}))


def seconds(folder: Path, *args: str) -> float:
    """User and system CPU seconds of a run in a process of its own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--probe-dump=dump.json", *args]
    process = subprocess.Popen(
        command, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_dump(folder, count)
        seconds(folder, BASELINE, "--probe-baseline-update")
        rounds = [(seconds(folder), seconds(folder, BASELINE)) for _ in range(ROUNDS)]
        size = (folder / "base.jsonl").stat().st_size
        cases = len((folder / "base.jsonl").read_text().splitlines()) - 1
    without, beside = (min(times) for times in zip(*rounds, strict=True))
    print(
        f"{cases:,} cases: {without:.1f} s of CPU without a baseline, {beside:.1f} s with one, "
        f"{beside / without:.3f} times"
    )
    print(f"the baseline: {size / 1000:.0f} kB, {size / cases:.0f} bytes a case")


if __name__ == "__main__":
    main()
