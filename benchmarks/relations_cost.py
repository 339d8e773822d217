"""What relations cost: `python benchmarks/relations_cost.py [ROUNDS]` (3 by default).

CPU time of a whole run with --probe-relations beside that of the same run without, the least of several rounds in
turns, since what else the machine does only adds to it. Two dumps: cases/gpt, whose tensors have a few hundred
elements each, so that calling is all that costs; and calls of a layer of a middling size, forward and backward, whose
tensors have up to a million. What importing and collecting costs is in all of the times; the same without it is in
brackets.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F

from tests.support.writing import entries, write_dump

ROOT = Path(__file__).parent.parent
ASKED = {"guard,all-written": 1.5, "all": 4.0}


def layer(folder: Path) -> Path:
    """A dump of the calls of a layer."""
    folder.mkdir()
    x, y = torch.randn(2, 512, 768), torch.randn(2, 512, 768)
    heads = [torch.randn(2, 12, 256, 64) for _ in range(3)]
    return write_dump(
        folder,
        {
            **entries(
                "Functional.layer_norm.0", F.layer_norm, x, [768], torch.rand(768), torch.rand(768), backward=True
            ),
            **entries("Functional.linear.0", F.linear, x, torch.randn(1024, 768), torch.randn(1024), backward=True),
            **entries("Functional.gelu.0", F.gelu, y, backward=True),
            **entries("Functional.softmax.0", F.softmax, torch.randn(2, 12, 128, 128), -1, backward=True),
            **entries("Torch.add.0", torch.add, x, y, backward=True),
            **entries("Torch.mul.0", torch.mul, x, y, backward=True),
            **entries(
                "Functional.scaled_dot_product_attention.0", F.scaled_dot_product_attention, *heads, backward=True
            ),
            **entries("Functional.silu.0", F.silu, x, backward=True),
        },
    )


def seconds(dump: Path, *options: str) -> float:
    """User and system CPU seconds of a run in a process of its own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--probe-dump={dump}", *options]
    process = subprocess.Popen(
        command, cwd=dump.parent, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with tempfile.TemporaryDirectory() as name:
        empty = write_dump(Path(name), entries("Functional.relu.0", F.relu, torch.zeros(1)))
        start = min(seconds(empty) for _ in range(rounds))
        for title, dump in (("cases/gpt", ROOT / "cases/gpt/dump.json"), ("a layer", layer(Path(name) / "layer"))):
            ways = ["", *ASKED]
            times = [
                [seconds(dump, *([f"--probe-relations={way}"] if way else [])) for way in ways] for _ in range(rounds)
            ]
            least = dict(zip(ways, (min(each) for each in zip(*times, strict=True)), strict=True))
            cases = sum(not key.startswith("Module.") for key in json.loads(dump.read_text())["data"])
            print(f"{title}, {cases} cases: {least['']:.2f} s of CPU without relations")
            for way, limit in ASKED.items():
                own = (least[way] - start) / (least[""] - start)
                print(f"  {way}: {least[way]:.2f} s, {least[way] / least['']:.2f} times (limit {limit}) [{own:.2f}]")


if __name__ == "__main__":
    main()
