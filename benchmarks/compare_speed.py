"""What it costs to compare two folders of outputs: `python benchmarks/compare_speed.py [--gigabytes G]
[--paddleapex CHECKOUT]`.

Writes two folders of PaddleAPEX's, so many GB a side in float32 tensors of 64 MB, one of them with noise. Prints CPU
time and peak memory of `pytest-probe compare --direct --standard=paddleapex` in a process of its own, without what the
same takes for small folders; those of PaddleAPEX's acc_direct_cmp.py where a checkout is given; and the time for
folders of 2,000 records, beside that of reading their files with NumPy. Nothing is kept.
"""

from __future__ import annotations

import argparse
import os
import pickle
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from msgspec import Struct

ROOT = Path(__file__).parent.parent
MEGABYTES = 64
RECORDS, ELEMENTS = 2000, 16384
# Runs a module of Python's or a script, and writes the peak of its memory: what the system tells may be the parent's.
MEASURED = """
import atexit, os, runpy, sys

def tell():
    with open("/proc/self/status") as status, open(os.environ["PEAK"], "w") as file:
        file.write(next(line.split()[1] for line in status if line.startswith("VmHWM")))

atexit.register(tell)
sys.argv = sys.argv[1:]
if sys.argv[0] == "pytest-probe":
    from pytest_probe.cli import main
    sys.exit(main(sys.argv[1:]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""
# PaddleAPEX's progress bar, which is not needed.
TQDM = "def tqdm(items, **options):\n    return items\n"


class Cost(Struct, frozen=True):
    """cpu in seconds, memory in MB."""

    cpu: float
    memory: float

    def above(self, other: Cost) -> Cost:
        return Cost(self.cpu - other.cpu, self.memory - other.memory)

    def __str__(self) -> str:
        return f"{self.cpu:.2f} s of CPU time, peak memory {self.memory:,.0f} MB"


def write(folder: Path, records: int, elements: int) -> tuple[Path, Path]:
    """The device's and the benchmark's folder."""
    generator = np.random.default_rng(0)
    base = generator.standard_normal(elements, dtype=np.float32)
    noise = generator.standard_normal(elements, dtype=np.float32) * np.float32(1e-6)
    sides = folder / "device", folder / "benchmark"
    for side, more in zip(sides, (noise, np.zeros_like(noise)), strict=True):
        (side / "output").mkdir(parents=True)
        for number in range(records):
            outputs = [False, ("eager_tmp_0", base * np.float32(1 + number % 7) + more)]
            with (side / "output" / f"paddle.exp*{number}").open("wb") as file:
                pickle.dump(outputs, file, protocol=4)
    return sides


def run(arguments: list[str], folder: Path, *paths: Path) -> Cost:
    """What a process of Python's with this program takes."""
    out = os.open(folder / "said.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    actions = [(os.POSIX_SPAWN_DUP2, out, 1), (os.POSIX_SPAWN_DUP2, out, 2)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "PEAK": str(folder / "peak.txt")}
    environment |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    told = [sys.executable, "-W", "ignore", "-c", MEASURED, *arguments]
    process = os.posix_spawn(sys.executable, told, environment, file_actions=actions)
    os.close(out)
    _, status, used = os.wait4(process, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise SystemExit((folder / "said.txt").read_text()[-2000:])
    return Cost(used.ru_utime + used.ru_stime, int((folder / "peak.txt").read_text()) / 1024)


def ours(sides: tuple[Path, Path], folder: Path) -> Cost:
    device, benchmark = map(str, sides)
    out = folder / f"out{time.time_ns()}"
    told = ["compare", device, benchmark, "--direct", "--standard=paddleapex", "-o", str(out)]
    return run(["pytest-probe", *told], folder, ROOT)


def theirs(checkout: Path, sides: tuple[Path, Path], folder: Path) -> Cost:
    (folder / "tqdm.py").write_text(TQDM)
    script = checkout.resolve() / "paddleapex" / "apex" / "acc_direct_cmp.py"
    out = folder / f"theirs{time.time_ns()}"
    told = ["-device", str(sides[0]), "-bench", str(sides[1]), "-o", str(out)]
    return run([str(script), *told], folder, folder, script.parent)


def read_all(sides: tuple[Path, Path]) -> float:
    """CPU seconds in which NumPy reads all files."""
    start = time.process_time()
    for path in (path for side in sides for path in side.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            pickle.load(file)
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--paddleapex", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small = write(folder / "small", 1, 16)
        elements = MEGABYTES * (1 << 20) // 4
        large = write(folder / "large", max(1, round(arguments.gigabytes * 1024 / MEGABYTES)), elements)
        mine = ours(large, folder).above(ours(small, folder))
        print(f"pytest-probe, {arguments.gigabytes:g} GB a side: {mine}")
        print(f"  peak memory is {mine.memory / (2 * MEGABYTES):.2f} times the largest pair of tensors")
        if arguments.paddleapex is not None:
            tool = theirs(arguments.paddleapex, large, folder).above(theirs(arguments.paddleapex, small, folder))
            print(f"PaddleAPEX: {tool}")
            print(f"  {tool.cpu / mine.cpu:.1f} times the CPU time, {tool.memory / mine.memory:.1f} times the memory")
        many = write(folder / "many", RECORDS, ELEMENTS)
        read, compared = read_all(many), ours(many, folder).above(ours(small, folder)).cpu
        print(f"{RECORDS:,} records of {ELEMENTS:,} elements: {compared:.2f} s of CPU time")
        print(f"  {compared / read:.2f} times what NumPy takes to read the files, {read:.2f} s")


if __name__ == "__main__":
    main()
