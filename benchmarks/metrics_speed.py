"""What all metrics of a pair of arrays cost: ours, msprobe's own functions, and a copy of the memory, in one run.

    python benchmarks/metrics_speed.py [--size N] [--repeats N] [--msprobe-python PYTHON ...]

CPU time (user and system) of one thread, the median of the repeats and the least; GB/s of both inputs; and by how much
the process's peak memory grew. Each line is a process of its own that reads the same arrays from disk. msprobe, in a
Python that has it (metrics_peer.py), compares them as softmax's output, as it would: fewer metrics, and no ULP.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

HERE = Path(__file__).parent
SINGLE = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
SMALL = 1000
# A pair's name: the output's dtype and the reference's, and what is in it.
PAIRS = {
    "float32/float32": ("float32", "float32"),
    "float32/float64": ("float32", "float64"),
    "float32/float64, half zeros": ("float32", "float64"),
    "bfloat16/float32": ("bfloat16", "float32"),
    "float16/float32": ("float16", "float32"),
}
FAMILIES = ("msprobe-26", "own")


def write_pairs(folder: Path, size: int) -> None:
    """Standard normal references (or their positive part), outputs off by noise of 1e-6 before they are rounded."""
    random = np.random.default_rng(0)
    for index, (name, (dtype, reference)) in enumerate(PAIRS.items()):
        values = random.standard_normal(size)
        if "zeros" in name:
            np.maximum(values, 0.0, out=values)
        expected = values.astype(reference)
        noisy = (expected * (1 + 1e-6 * random.standard_normal(size))).astype(np.float32)
        actual = noisy.astype(getattr(ml_dtypes, dtype)).view(np.int16) if dtype == "bfloat16" else noisy.astype(dtype)
        np.save(folder / f"{index}-actual.npy", actual)
        np.save(folder / f"{index}-expected.npy", expected)


def load(folder: Path, name: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    index = list(PAIRS).index(name)
    actual, expected = np.load(folder / f"{index}-actual.npy"), np.load(folder / f"{index}-expected.npy")
    return (actual.view(ml_dtypes.bfloat16) if name.startswith("bfloat16") else actual), expected


def peak() -> int:
    """The most memory this process had, in KiB, since the mark was last reset."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def timed(call: Callable[[], object], repeats: int, calls: int = 1) -> dict[str, float]:
    """CPU seconds of a call and the growth of peak memory in MiB; also used by metrics_peer.py."""
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    call()
    grown = (peak() - before) / 1024
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        for _ in range(calls):
            call()
        seconds.append((time.process_time() - start) / calls)
    return {"median": statistics.median(seconds), "least": min(seconds), "memory": grown}


def ours(folder: Path, what: str, name: str, repeats: int) -> dict[str, float]:
    from pytest_probe.numerics.tool_metrics import Convention, measure
    from pytest_probe.standards.tools.release import packaged_release

    actual, expected = load(folder, name)
    if what == "copy":
        target = np.empty_like(expected)
        return timed(lambda: np.copyto(target, expected), repeats, 10)
    msprobe = packaged_release("msprobe-26").convention_of(*PAIRS[name])
    rule = Convention(alike=True, ulp="own") if what.startswith("own") else msprobe
    if what.endswith("small"):
        actual, expected = actual[:SMALL].copy(), expected[:SMALL].copy()
        return timed(lambda: measure(actual, expected, rule), repeats, 1000)
    return timed(lambda: measure(actual, expected, rule), repeats)


def run(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, env={**os.environ, **SINGLE}, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def lines(folder: Path, size: int, repeats: int, peers: list[str]) -> Iterator[str]:
    for name in PAIRS:
        actual, expected = load(folder, name)
        volume = actual.nbytes + expected.nbytes
        yield f"{name}, {size:,} elements, {volume / 1e6:.0f} MB"
        for what in ("copy", *FAMILIES):
            cost = run([sys.executable, __file__, "--one", str(folder), what, name, str(repeats)])
            # A copy reads and writes the reference.
            yield line(
                "a copy of the reference" if what == "copy" else f"ours, {what}",
                cost,
                volume if what != "copy" else 2 * expected.nbytes,
            )
        for python in peers:
            cost = run([python, str(HERE / "metrics_peer.py"), str(folder), name, str(repeats)])
            yield line(f"msprobe {cost['release']}", cost, volume)
    for what in FAMILIES:
        cost = run([sys.executable, __file__, "--one", str(folder), f"{what} small", "float32/float64", str(repeats)])
        yield f"{SMALL:,} elements of float32/float64, ours, {what}: {1e6 * cost['median']:.0f} us"
    for python in peers:
        cost = run([python, str(HERE / "metrics_peer.py"), str(folder), "float32/float64", str(repeats), str(SMALL)])
        yield f"{SMALL:,} elements of float32/float64, msprobe {cost['release']}: {1e6 * cost['median']:.0f} us"


def line(name: str, cost: dict[str, Any], volume: int) -> str:
    return (
        f"  {name:<26} {1000 * cost['median']:>7.1f} ms (least {1000 * cost['least']:.1f})"
        f" {volume / cost['median'] / 1e9:>7.2f} GB/s {cost['memory']:>8.1f} MiB"
    )


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        folder, what, name, repeats = sys.argv[2:]
        print(json.dumps(ours(Path(folder), what, name, int(repeats))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=10_000_000, help="elements of each array (default: 10,000,000)")
    parser.add_argument("--repeats", type=int, default=9, help="runs of each measurement (default: 9)")
    parser.add_argument("--msprobe-python", metavar="PYTHON", action="append", default=[], help="repeatable")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_pairs(Path(folder), given.size)
        for text in lines(Path(folder), given.size, given.repeats, given.msprobe_python):
            print(text, flush=True)


if __name__ == "__main__":
    main()
