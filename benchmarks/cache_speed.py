"""What --probe-cache saves: `python benchmarks/cache_speed.py`.

A dump of calls that take 10 ms and more each, forward and backward, in one thread of a CPU: products, a convolution,
attention, and functions of four million elements. Three runs of pytest, each a process of its own: without a cache,
with an empty one, and with the one that this filled. Printed are the CPU seconds of each with its share of the second,
those of starting alone, the size of the folder, and whether all results are equal.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.nn.functional as F

import pytest_probe
from benchmarks.check_speed import cost

OPTIONS = ["-p", "pytest_probe.plugin", "-p", "no:cacheprovider", "-c", os.devnull, "-q", "--probe-device=cpu"]


def normal(*shape: int, scale: float = 1.0) -> torch.Tensor:
    return (scale * torch.randn(shape)).requires_grad_()


def calls() -> Iterator[Callable[[], torch.Tensor]]:
    x, weight, bias = normal(1024, 1024), normal(1024, 1024, scale=0.03), normal(1024)
    yield lambda: F.linear(x, weight, bias)
    yield lambda: torch.matmul(x, weight)
    query, key, value = (normal(4, 8, 256, 64) for _ in range(3))
    yield lambda: F.scaled_dot_product_attention(query, key, value, is_causal=True)
    image, kernel = normal(4, 32, 64, 64), normal(64, 32, 3, 3, scale=0.05)
    yield lambda: F.conv2d(image, kernel, padding=1)
    rows, classes = normal(2048, 2048), torch.randint(0, 2048, (2048,))
    ones, zeros = torch.ones(2048), torch.zeros(2048)
    yield lambda: F.gelu(rows)
    yield lambda: F.softmax(rows, -1)
    yield lambda: F.layer_norm(rows, (2048,), ones, zeros)
    yield lambda: F.cross_entropy(rows, classes)


def record(folder: Path) -> Path:
    """The dump; which of the calls take how long is printed."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    steps = []
    for call in calls():
        call().sum().backward()
        begun = time.process_time()
        result = call()
        forward = time.process_time() - begun
        result.backward(torch.ones_like(result))
        steps.append((call, torch.ones_like(result)))
        print(f"forward {forward * 1e3:5.1f} ms, with backward {(time.process_time() - begun) * 1e3:5.1f} ms")
    with pytest_probe.capture(str(folder / "dumps")):
        for call, gradient in steps:
            call().backward(gradient)
    (dump,) = (folder / "dumps").rglob("dump.json")
    return dump


def results(folder: Path) -> list[str]:
    """Without durations."""
    lines = (folder / "results.jsonl").read_text().splitlines()
    return sorted(json.dumps({**json.loads(line), "duration": 0}) for line in lines)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(record(folder), folder / "dump.json")
        command = [sys.executable, "-m", "pytest", *OPTIONS, "--probe-dump=dump.json"]
        started = cost(folder, [*command, "--collect-only"]).seconds
        seconds = {}
        for run in ("without a cache", "empty cache", "warm cache"):
            cached = [] if run == "without a cache" else ["--probe-cache=cache"]
            seconds[run] = cost(folder, [*command, f"--probe-out={run}", *cached]).seconds
            share = seconds[run] / seconds.get("empty cache", seconds[run])
            print(f"{run:<16} {seconds[run]:6.1f} s of CPU, {share:.2f}", flush=True)
        print(f"starting and collecting alone: {started:.1f} s")
        size = sum(path.stat().st_size for path in (folder / "cache").iterdir())
        found = [results(folder / run) for run in seconds]
        print(
            f"{len(found[0])} results, equal: {found[0] == found[1] == found[2]}; the folder has {size / 1e6:,.0f} MB"
        )
        print(f"warm over without: {seconds['warm cache'] / seconds['without a cache']:.2f}")


if __name__ == "__main__":
    main()
