"""A hundred thousand records: `python benchmarks/scale.py [RECORDS]` (default 100,000, and a hundredth and a tenth).

The dumps repeat the records of cases/gpt with new call numbers.

1. CPU seconds and peak memory of collecting, by the process itself, and by a worker that then has nothing to run; with
   and without --probe-unique.
2. CPU milliseconds an item of 2,000 cases at -n 0, 1 and 2, of workers and of the controller, without what comes before
   the first item; with and without --probe-unique.
3. The speed-up of -n 2 over -n 1 by wall time, beside the one that two cores allow: with c and w the CPU time of
   controller and worker an item, 2w / (w + c).
4. CPU seconds of the items of four shards of two steps, and how much the costliest has above their mean.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.reading_speed import write_dump
from tests.support.dumps import unpack

RUN_RECORDS, SHARDS = 2_000, 4
STEPS = ("msprobe-26.2.0/cnn", "msprobe-26.2.0/gpt")
OPTIONS = ["-q", "--probe-device=cpu", "-p", "no:cacheprovider"]
TOLD, EMPTY = "SCALE_TOLD", "SCALE_EMPTY"
PLUGINS = ["-p", "xdist.plugin", "-p", "pytest_probe.plugin", "-p", "benchmarks.scale", "-c", os.devnull]


BEGUN: list[tuple[float, float]] = []


def pytest_runtest_logstart() -> None:
    """As a plugin, in every process: note when the first item begins, behind imports and collecting."""
    if not BEGUN:
        BEGUN.append((time.perf_counter(), time.process_time()))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """As a plugin: append what the items took to a file."""
    found = yield
    wall, cpu = BEGUN[0] if BEGUN else (time.perf_counter(), time.process_time())
    told = {
        "worker": hasattr(session.config, "workerinput"),
        "cpu": time.process_time() - cpu,
        "wall": time.perf_counter() - wall,
        "items": session.testscollected,
    }
    with open(os.environ[TOLD], "a", encoding="utf-8") as file:
        file.write(json.dumps(told) + "\n")
    return found


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """As a plugin: leave a worker nothing to run."""
    if os.environ.get(EMPTY):
        items.clear()


def run(folder: Path, *args: str, empty: bool = False) -> tuple[list[dict[str, Any]], tuple[float, float]]:
    """What each process told, and CPU seconds and peak MiB of the whole run, its largest process."""
    told = folder / "told.jsonl"
    told.write_text("")
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": str(Path(__file__).parents[1]),
        TOLD: str(told),
        EMPTY: "1" if empty else "",
    }
    command = [
        sys.executable,
        __file__,
        "--child",
        *PLUGINS,
        "-q",
        "--probe-device=cpu",
        "-p",
        "no:cacheprovider",
        *args,
    ]
    process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in told.read_text().splitlines()]
    if process.returncode:
        sys.exit(process.stdout + process.stderr)
    cpu, peak = map(float, process.stdout.splitlines()[-1].split())
    return lines, (cpu, peak)


def child(args: Sequence[str]) -> int:
    """One run of pytest; the last line is CPU seconds and peak MiB of this process, or of its worker under -n."""
    status = int(pytest.main([*args]))
    who = resource.RUSAGE_CHILDREN if "-n1" in args else resource.RUSAGE_SELF
    used = resource.getrusage(who)
    print(f"\n{used.ru_utime + used.ru_stime} {used.ru_maxrss / 1024}")
    return 0 if status == pytest.ExitCode.NO_TESTS_COLLECTED else status


def collecting(folder: Path, records: int) -> None:
    dump = folder / f"{records}.json"
    write_dump(dump, records, nan=False)
    for name, args in (("alone", ["--collect-only", "-qq"]), ("in a worker", ["-n1"])):
        for unique in ([], ["--probe-unique"]):
            _, (cpu, peak) = run(folder, f"--probe-dump={dump}", *args, *unique, empty="-n1" in args)
            print(
                f"collecting {records:>7,} {name:<12}{' '.join(unique):<16} {cpu:6.2f} s CPU, {peak:4.0f} MiB",
                flush=True,
            )
    dump.unlink()


def running(folder: Path, *unique: str) -> None:
    dump = folder / "run.json"
    write_dump(dump, RUN_RECORDS, nan=False)
    found = {workers: run(folder, f"--probe-dump={dump}", f"-n{workers}", *unique)[0] for workers in range(3)}
    walls, costs = {}, {}
    for workers, told in found.items():
        (main,) = (line for line in told if not line["worker"])
        items = main["items"]
        controller = main["cpu"] / items * 1e3
        worker = sum(line["cpu"] for line in told if line["worker"]) / items * 1e3
        walls[workers], costs[workers] = main["wall"], (controller, worker)
        words = f"controller {controller:.2f} ms, workers {worker:.2f} ms" if workers else f"{controller:.2f} ms"
        print(
            f"-n {workers} {' '.join(unique)}: {items:,} items, {words} of CPU an item, {main['wall']:.1f} s",
            flush=True,
        )
    c, w = costs[2]
    bound, measured = 2 * w / (w + c), walls[1] / walls[2]
    print(f"-n 2 over -n 1: {measured:.2f} times as fast; two cores allow {bound:.2f}: {measured / bound:.0%} of it")


def dealing(folder: Path, name: str) -> None:
    """Each shard is a process of its own, which has what a framework does once as well."""
    dump = unpack(name, folder)
    shards = (f"--probe-shard={number}/{SHARDS}" for number in range(1, SHARDS + 1))
    cpu = [run(folder, f"--probe-dump={dump}", shard)[0][0]["cpu"] for shard in shards]
    mean = sum(cpu) / SHARDS
    words = ", ".join(f"{each:.2f}" for each in cpu)
    print(f"{SHARDS} shards of {name}: {words} s, the costliest {max(cpu) / mean:.2f} times their mean")


def main(records: int = 100_000) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for number in (records // 100, records // 10, records):
            collecting(folder, number)
        running(folder)
        running(folder, "--probe-unique")
        for name in STEPS:
            dealing(folder, name)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        sys.exit(child(sys.argv[2:]))
    main(*map(int, sys.argv[1:2]))
