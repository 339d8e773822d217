"""What collectives cost: `python benchmarks/collectives_cost.py [CALLS] [MEGABYTES]` (1,000 and 1 by default).

Four ranks recorded so many collectives of float32 tensors: two in five all_reduce, one in five each reduce_scatter,
all_gather and broadcast. A run judges what the dumps stored, in one process; another one makes the calls again in four
processes of gloo, and judges that. CPU seconds of pytest and of all processes that it starts, wall seconds, and the
same of a run that judges nothing, which is what importing and collecting costs.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

RANKS = 4
KINDS = ("all_reduce", "reduce_scatter_tensor", "all_reduce", "all_gather_into_tensor", "broadcast")


def written(folder: Path, calls: int, size: int) -> Path:
    """The dumps. All calls of a kind have the same files."""
    given = [np.random.default_rng(rank).standard_normal(size).astype(np.float32) for rank in range(RANKS)]
    total, parts = np.add(np.add(given[0], given[1]), np.add(given[2], given[3])), size // RANKS
    for rank in range(RANKS):
        place = folder / "step0" / f"rank{rank}"
        (place / "dump_tensor_data").mkdir(parents=True)
        part = slice(rank * parts, (rank + 1) * parts)
        tensors = {
            "given": given[rank],
            "part": given[rank][:parts],
            "total": total,
            "own": total[part],
            "first": given[0],
            "whole": np.concatenate([each[:parts] for each in given]),
        }
        for name, array in tensors.items():
            np.save(place / "dump_tensor_data" / f"{name}.npy", array)
        shapes = {name: array.size for name, array in tensors.items()}
        data = {
            f"Distributed.{KINDS[order % 5]}.{order}.forward": _entry(KINDS[order % 5], shapes, rank, order)
            for order in range(calls)
        }
        header: dict[str, Any] = {"task": "tensor", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
        (place / "dump.json").write_text(json.dumps({**header, "probe": {}, "data": data}))
    return folder


def _entry(kind: str, sizes: Mapping[str, int], rank: int, order: int) -> dict[str, Any]:
    def tensor(name: str) -> dict[str, Any]:
        shape = {"dtype": "torch.float32", "shape": [sizes[name]], "requires_grad": False}
        return {"type": "torch.Tensor", **shape, "data_name": f"{name}.npy", "Max": 4.0, "Min": -4.0}

    args, output = {
        "all_reduce": (["given"], "total"),
        "reduce_scatter_tensor": (["own", "given"], "own"),
        "all_gather_into_tensor": (["whole", "part"], "whole"),
        "broadcast": (["given"], "first"),
    }[kind]
    kwargs = {"src": {"type": "int", "value": 0}} if kind == "broadcast" else {}
    known = {"ranks": list(range(RANKS)), "rank": rank, "order": order, "backend": "gloo"}
    return {
        "input_args": [tensor(name) for name in args],
        "input_kwargs": kwargs,
        "output": [tensor(output)],
        "probe": {"collective": known},
    }


def cost(folder: Path, *options: str) -> tuple[float, float, str]:
    """CPU seconds, wall seconds, and the last line of a run."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--probe-dump={folder}", *options]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False
    )
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, wall, done.stdout.strip().splitlines()[-1]


def main(calls: int = 1000, megabytes: float = 1.0) -> None:
    size = int(megabytes * 1e6) // 4 // RANKS * RANKS
    print(f"{calls:,} collectives of {megabytes:g} MB on {RANKS} ranks, {calls * RANKS:,} items")
    with tempfile.TemporaryDirectory() as folder:
        dumps = written(Path(folder), calls, size)
        for words, options in (
            ("collected alone", ["--probe-device=recorded", "--collect-only"]),
            ("judged", ["--probe-device=recorded"]),
            ("made again and judged", [f"--probe-ranks={RANKS}"]),
        ):
            cpu, wall, last = cost(dumps, *options)
            print(f"{words:24} {cpu:7.1f} s CPU {wall:7.1f} s wall   {last}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), *map(float, sys.argv[2:3]))
