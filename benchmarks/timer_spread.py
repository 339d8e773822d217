"""How far the times of one call lie apart: `python benchmarks/timer_spread.py [SECONDS] [PROCESSES]` (0.05 and 5).

Ten operators are timed in several processes, one after the other, beside a process that keeps another core busy. It
prints the largest median over the smallest, for our timer and for torch.utils.benchmark with the same budget, and what
our timer adds to a call beyond a plain loop.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from timeit import Timer
from typing import Any

import numpy as np

SPIN = "while True: pass"
# Calls of the plain loop, and how often it is made: its least is compared with ours.
LOOP, LOOPS = 100, 500


def operators() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """What is timed, with its arguments as NumPy's arrays."""
    import torch
    import torch.nn.functional as F

    random = np.random.default_rng(0)

    def array(*shape: int) -> Any:
        return random.standard_normal(shape).astype(np.float32)

    return {
        "add, 1 element": (torch.add, (array(1), array(1))),
        "add, 65,536": (torch.add, (array(65536), array(65536))),
        "relu, 4,096": (torch.relu, (array(4096),)),
        "gelu, 64 x 256": (F.gelu, (array(64, 256),)),
        "softmax, 64 x 256": (F.softmax, (array(64, 256), -1)),
        "layer_norm, 64 x 256": (F.layer_norm, (array(64, 256), (256,))),
        "sum, 262,144": (torch.sum, (array(262144),)),
        "linear, 64 x 256 x 256": (F.linear, (array(64, 256), array(256, 256))),
        "matmul, 256 x 256 x 256": (torch.matmul, (array(256, 256), array(256, 256))),
        "conv2d, 4 x 16 x 16 x 16": (F.conv2d, (array(4, 16, 16, 16), array(16, 16, 3, 3))),
    }


def child(budget: float) -> None:
    """Print the medians of all operators, in microseconds."""
    import torch
    from torch.utils import benchmark

    from pytest_probe import frameworks
    from pytest_probe.features.timing.blocks import times
    from pytest_probe.model.run import Arguments, Leaf, MeasuredCall, Way

    framework = frameworks.load("pytorch")
    device = framework.device("cpu")
    found: dict[str, dict[str, float]] = {}
    for name, (function, arrays) in operators().items():
        given = tuple(Leaf(array) if isinstance(array, np.ndarray) else array for array in arrays)
        call = MeasuredCall(function, Arguments(given, {}, None), Way(device=device))
        with framework.fixed_state(), framework.repeated(call) as repeated:
            ours = times(framework.clock(device), repeated.ready, repeated.empty, budget)
        args = tuple(torch.from_numpy(array) if isinstance(array, np.ndarray) else array for array in arrays)
        names = {"f": function, "args": args}
        theirs = benchmark.Timer("f(*args)", globals=names).blocked_autorange(min_run_time=budget)
        found[name] = {"ours": ours.median * 1e6, "theirs": theirs.median * 1e6}
        if name == "add, 1 element":
            with torch.no_grad():
                loop = min(Timer("f(a, b)", globals={"f": function, "a": args[0], "b": args[1]}).repeat(LOOPS, LOOP))
            found[name]["added"] = ours.least * 1e6 - loop / LOOP * 1e6
    print(json.dumps(found))


def main() -> None:
    budget = float(sys.argv[1]) if len(sys.argv) > 1 else 0.05
    processes = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    busy = subprocess.Popen([sys.executable, "-c", SPIN])
    try:
        command = [sys.executable, __file__, "--child", str(budget)]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent.parent)}
        runs = [json.loads(subprocess.check_output(command, env=env, text=True)) for _ in range(processes)]
    finally:
        busy.kill()
    print(f"{processes} processes, {budget:g} s an operator, beside one busy core; load {os.getloadavg()[0]:.1f}")
    print(f"{'operator':<28} {'median':>10} {'largest / smallest':>20} {'torch.utils.benchmark':>23}")
    for name in runs[0]:
        ours, theirs = ([run[name][whose] for run in runs] for whose in ("ours", "theirs"))
        print(f"{name:<28} {median(ours):>7.2f} us {max(ours) / min(ours):>20.3f} {max(theirs) / min(theirs):>23.3f}")
    added = [run["add, 1 element"]["added"] for run in runs]
    print(f"added to a call, beyond a plain loop: {min(added):.3f} to {max(added):.3f} us, median {median(added):.3f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(float(sys.argv[2]))
    else:
        main()
