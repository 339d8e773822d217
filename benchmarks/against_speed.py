"""What it costs to compare two dumps: `python benchmarks/against_speed.py [--gigabytes G] [--differing SHARE]`.

Writes two dumps of 10,000 float32 tensors, so many GB a side: calls of addcmul, whose outputs are equal but for an ulp
in a share of them. Prints the wall time and the peak memory of `pytest --probe-dump=A --probe-against=B` in a process
of its own, beside the time that reading all bytes of both takes, both from the page cache; before that the CPU time of
two dumps of statistics alone, of 100,000 entries. Nothing is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
TENSORS = 10_000
IN_RECORD = 4
ENTRIES = 100_000
PLACES = ("input.0", "input.1", "input.2", "output.0")


def tensor(array: np.ndarray[Any, Any], name: str | None = None) -> dict[str, Any]:
    entry = {
        "type": "torch.Tensor",
        "dtype": f"torch.{array.dtype.name}",
        "shape": list(array.shape),
        "Max": float(array.max()),
        "Min": float(array.min()),
        "Mean": float(array.mean(dtype=np.float64)),
        "Norm": float(np.linalg.norm(array.astype(np.float64))),
        "requires_grad": False,
    }
    return entry if name is None else {**entry, "data_name": name}


def write_tensors(folder: Path, size: int, differing: float) -> None:
    """Additions of two tensors with out-of-place results, all stored; a share of records has one other output bit."""
    data_dir = folder / "dump_tensor_data"
    data_dir.mkdir(parents=True)
    generator = np.random.default_rng(0)
    base = generator.standard_normal(size, dtype=np.float32)
    data: dict[str, Any] = {}
    for number in range(TENSORS // IN_RECORD):
        shift = np.float32(number)
        arrays = [base + shift, base[::-1] * (1 + shift), base * 2]
        arrays.append(arrays[0] + arrays[1] * arrays[2])
        if number < differing * TENSORS / IN_RECORD:
            arrays[-1][0] = np.nextafter(arrays[-1][0], np.float32(np.inf))
        names = [f"Torch.addcmul.{number}.forward.{place}.npy" for place in PLACES]
        for name, array in zip(names, arrays, strict=True):
            np.save(data_dir / name, array)
        specs = [tensor(array, name) for array, name in zip(arrays, names, strict=True)]
        data[f"Torch.addcmul.{number}.forward"] = {"input_args": specs[:3], "input_kwargs": {}, "output": specs[3:]}
    write_dump(folder, data, "tensor")


def write_statistics(folder: Path) -> None:
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    values = [tensor(generator.standard_normal(64, dtype=np.float32)) for _ in range(1000)]
    data = {
        f"Torch.add.{number}.forward": {
            "input_args": [values[number % 1000], values[(number + 7) % 1000]],
            "input_kwargs": {},
            "output": [values[(number + 13) % 1000]],
        }
        for number in range(ENTRIES)
    }
    write_dump(folder, data, "statistics")


def write_dump(folder: Path, data: dict[str, Any], task: str) -> None:
    head = {"task": task, "level": "L1", "framework": "pytorch", "dump_data_dir": None, "data": data}
    (folder / "dump.json").write_text(json.dumps(head))


def read_all(*folders: Path) -> float:
    """Seconds to read every byte of the folders, into one buffer."""
    buffer = bytearray(1 << 20)
    start = time.perf_counter()
    for path in (path for folder in folders for path in folder.rglob("*") if path.is_file()):
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    return time.perf_counter() - start


def compared(a: Path, b: Path) -> tuple[float, float, float, str]:
    """Wall and CPU seconds, peak memory in MB, and the summary."""
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    options = ["-p", "pytest_probe.plugin", "-p", "no:cacheprovider", "-q"]
    command = [sys.executable, "-m", "pytest", *options, f"--probe-dump={a}", f"--probe-against={b}"]
    with tempfile.TemporaryFile("w+") as output:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=a.parent, env=environment)
        _, _, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        output.seek(0)
        said = [line for line in output.read().splitlines() if line.startswith("probe: ")]
    return wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, " ".join(said)


def main() -> None:
    parser = argparse.ArgumentParser(description="What it costs to compare two dumps")
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--differing", type=float, default=0.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        a, b = Path(name, "A"), Path(name, "B")
        write_statistics(a)
        write_statistics(b)
        wall, cpu, peak, said = compared(a, b)
        print(f"{ENTRIES:,} entries of statistics: {wall:.1f} s, {cpu:.1f} s of CPU, peak {peak:.0f} MB; {said}")
    with tempfile.TemporaryDirectory() as name:
        a, b = Path(name, "A"), Path(name, "B")
        size = int(options.gigabytes * 1e9 / TENSORS / 4)
        write_tensors(a, size, 0.0)
        write_tensors(b, size, options.differing)
        reading = min(read_all(a, b) for _ in range(2))
        wall, cpu, peak, said = compared(a, b)
        words = f"{options.gigabytes:g} GB a side, {options.differing:.0%} of the outputs differ"
        print(f"{words}: {wall:.1f} s, {wall / reading:.2f} times reading all bytes ({reading:.1f} s)")
        print(f"  {cpu:.1f} s of CPU, peak {peak:.0f} MB; {said}")


if __name__ == "__main__":
    main()
