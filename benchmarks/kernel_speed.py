"""How fast the compiled kernel counts, as a Markdown table: gigabytes a second of CPU time, for each dtype.

    python benchmarks/kernel_speed.py

One mebibyte, which a cache holds, and 64, which it does not; the best of seven. "read" is NumPy's bitwise or of the
same memory.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import ml_dtypes
import numpy as np

from pytest_probe.capture import kernel


def speed(act: Callable[[], object], size: int) -> float:
    """Gigabytes a second."""
    times = max(1, (1 << 26) // size)
    best = float("inf")
    for _ in range(7):
        began = time.thread_time()
        for _ in range(times):
            act()
        best = min(best, (time.thread_time() - began) / times)
    return size / best / 1e9


def row(name: str) -> str:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    cells = []
    for size in (1 << 20, 1 << 26):
        numbers = np.random.default_rng(0).normal(size=size // dtype.itemsize)
        array = (abs(numbers) if dtype.kind == "u" else numbers).astype(dtype)
        told = (array.ctypes.data, array.size, kernel.DTYPES.index(name))
        words = array.view(np.int64)
        counted = speed(lambda told=told: kernel.compiled.measure(*told), size)  # type: ignore[misc, union-attr]
        read = speed(lambda words=words: np.bitwise_or.reduce(words), size)  # type: ignore[misc]
        cells += [f"{counted:.1f}", f"{read:.1f}"]
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    print(kernel.kernel_line())
    if kernel.compiled is None:
        return
    print("| dtype | 1 MiB | read | 64 MiB | read |")
    print("|---|---|---|---|---|")
    for name in ("float32", "float64", "bfloat16", "float16", "int64", "int32", "bool"):
        print(row(name), flush=True)


if __name__ == "__main__":
    main()
