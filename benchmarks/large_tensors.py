"""Calls too large for a reference in full: how long one takes, and how often one wrong element is found.

    python benchmarks/large_tensors.py [--time] [--found] [--shape ROWS,IN,OUT] [--dtypes float32] [--trials 40]

--time: a linear of that shape (default: 2048 rows of a 7B model's 4096 x 11008), forward and backward, on the CPU, in
seconds. --found: a linear of 4.3e9 FLOP at the same ratio of cost to budget, with one element of the output,
drawn at random, off by a share of the output's root mean square; the share of trials that end in an error.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from pytest_probe.check import Case, CaseOutcome, Checker, RunRequest  # noqa: E402
from pytest_probe.check.engines import FLOPS  # noqa: E402
from pytest_probe.model.dump import Direction  # noqa: E402
from pytest_probe.records import read_dump  # noqa: E402
from pytest_probe.registry import Registry  # noqa: E402

SMALL = (1024, 1024, 2048)
SIZES = (10.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.001)


class OneElement:
    """A linear whose output has one wrong element, as the device."""

    def __init__(self, seed: int, size: float) -> None:
        self.random = np.random.default_rng(seed)
        self.size = size

    def __call__(self, *args: torch.Tensor) -> torch.Tensor:
        result = F.linear(*args)
        place = int(self.random.integers(result.numel()))
        result.view(-1)[place] += self.size * float(result.detach().float().square().mean().sqrt())
        return result


def tensor(dtype: str, *shape: int) -> dict[str, Any]:
    """A tensor's statistics as msprobe writes them: a standard normal distribution."""
    return {
        "type": "torch.Tensor",
        "dtype": f"torch.{dtype}",
        "shape": list(shape),
        "Max": 4.5,
        "Min": -4.5,
        "Mean": 0.0,
        "Norm": float(np.prod(shape)) ** 0.5,
        "requires_grad": True,
    }


def case_of(shape: tuple[int, int, int], dtype: str, direction: Direction, folder: Path) -> Case:
    """A linear of (rows, in, out) as a case of a dump."""
    rows, inner, outer = shape
    arguments = [tensor(dtype, rows, inner), tensor(dtype, outer, inner), tensor(dtype, outer)]
    output = [tensor(dtype, rows, outer)]
    data = {
        "Functional.linear.0.forward": {"input_args": arguments, "input_kwargs": {}, "output": output},
        "Functional.linear.0.backward": {"input": output, "output": arguments},
    }
    path = folder / "dump.json"
    path.write_text(json.dumps({"task": "statistics", "level": "L1", "framework": "pytorch", "data": data}))
    dump = read_dump(path)
    return Case(dump, dump.records[0], direction)


def measure(shape: tuple[int, int, int], dtypes: list[str], folder: Path) -> None:
    print(f"linear of {shape}, {torch.get_num_threads()} threads, budget {FLOPS:.0e} FLOP\n")
    print("| dtype | direction | verdict | seconds | sampled |\n|---|---|---|---|---|")
    for dtype in dtypes:
        checker = Checker(RunRequest(device="cpu"), Registry.default())
        checked: CaseOutcome | None = None
        total = 0.0
        one = case_of(shape, dtype, "forward", folder)
        for direction in ("forward", "backward"):
            start = time.perf_counter()
            checked = checker.run(Case(one.dump, one.record, direction), checked)
            total += time.perf_counter() - start
            verdict = checked.verdict
            shares = ", ".join(f"{output.name} {output.metrics['sampled']:.1%}" for output in verdict.outputs)
            print(
                f"| {dtype} | {direction} | {verdict.verdict} | {time.perf_counter() - start:.1f} | {shares} |",
                flush=True,
            )
        print(f"| {dtype} | both | | {total:.1f} | |", flush=True)
    print(f"\npeak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB\n")


def count_found(shape: tuple[int, int, int], dtypes: list[str], trials: int, folder: Path) -> None:
    rows, inner, outer = SMALL
    budget = FLOPS * (rows * inner * outer) / np.prod(shape, dtype=float)
    print(f"one wrong element in a linear of {SMALL}, budget {budget:.1e} FLOP, {trials} trials each\n")
    print("| dtype | " + " | ".join(f"{size:g}" for size in (*SIZES, 0.0)) + " |\n" + "|---" * (len(SIZES) + 2) + "|")
    for dtype in dtypes:
        found = []
        for size in (*SIZES, 0.0):
            registry = Registry.default()
            registry.calls["Functional.linear"] = OneElement(0, size)
            case = case_of(SMALL, dtype, "forward", folder)
            checks = (
                Checker(RunRequest(device="cpu", flops=budget, seed=seed), registry).check(case)
                for seed in range(trials)
            )
            found.append(sum(verdict.verdict == "error" for verdict in checks) / trials)
        print(f"| {dtype} | " + " | ".join(f"{share:.0%}" for share in found) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--found", action="store_true")
    parser.add_argument("--shape", default="2048,4096,11008")
    parser.add_argument("--dtypes", default="float32,bfloat16,float16")
    parser.add_argument("--trials", type=int, default=40)
    options = parser.parse_args()
    rows, inner, outer = map(int, options.shape.split(","))
    both = options.time == options.found
    with tempfile.TemporaryDirectory() as folder:
        if options.time or both:
            measure((rows, inner, outer), options.dtypes.split(","), Path(folder))
        if options.found or both:
            count_found((rows, inner, outer), options.dtypes.split(","), options.trials, Path(folder))


if __name__ == "__main__":
    main()
