"""Runs that are killed, and cases that kill: `python benchmarks/survival.py [KILLS]`.

1. 400 cases of which 40 crash, under `-n 2`: how many results, how many errors.
2. The CPU time of one crash, beside that of a process that imports torch and collects the dump.
3. KILLS runs (default 30), each killed with SIGKILL after a random number of results (the whole run, a worker under
   `-n 2`, the process of --probe-isolate), then resumed, and compared as sets with a run that nobody disturbed.
4. The CPU time of --probe-isolate on cases/gpt, as a ratio to the same run without it.
5. The CPU time of --probe-resume of a finished run of 100,000 results, as a ratio to collecting them.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

GPT = Path(__file__).parent.parent / "cases" / "gpt"
CASES, CRASHES, LARGE = 400, 40, 100_000
ROUNDS, PAIRS = 3, 9
# What users have: no plugins but pytest-xdist beside this one.
PLUGINS = ["-p", "xdist.plugin", "-p", "xdist.looponfail", "-p", "pytest_probe.plugin", "-c", os.devnull]
PYTEST = [sys.executable, "-m", "pytest", *PLUGINS, "-q", "--probe-device=cpu"]
# Calls of gelu end the process.
CRASHING = """
import ctypes

def crash(*args, **kwargs):
    ctypes.string_at(0)

def pytest_probe_register(registry):
    registry.calls["Functional.gelu"] = crash
"""


def environment() -> dict[str, str]:
    """Installed packages are compiled: so is this one, whatever is set here."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def tensor() -> dict[str, Any]:
    numbers = {"Max": 1.0, "Min": -1.0, "Mean": 0.0, "Norm": 1.0}
    return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3], **numbers, "requires_grad": True}


def write_dump(path: Path, cases: int, crashes: int = 0) -> Path:
    """A dump of forward calls, every so many of them one of gelu."""
    each = cases // crashes if crashes else cases + 1
    names = (
        f"Functional.{'gelu' if number % each == each - 1 else 'relu'}.{number}.forward" for number in range(cases)
    )
    call = {"input_args": [tensor()], "input_kwargs": {}, "output": [tensor()]}
    header = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    path.write_text(json.dumps({**header, "data": dict.fromkeys(names, call)}))
    return path


def run(folder: Path, *args: str) -> tuple[int, float]:
    """Exit status, and seconds of CPU of the run with all its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with (folder / "log.txt").open("wb") as log:
        done = subprocess.run([*PYTEST, *args], cwd=folder, env=environment(), stdout=log, stderr=log, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.returncode, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def results(folder: Path) -> list[str]:
    """All but the durations, sorted: one that is there twice counts twice."""
    lines = (folder / "results.jsonl").read_text().splitlines()
    return sorted(json.dumps({**json.loads(line), "duration": 0}) for line in lines)


def crashes(home: Path) -> None:
    dump = write_dump(home / "crashing.json", CASES, CRASHES)
    healthy = run(home, f"--probe-dump={dump}", "--probe-out=healthy", "-n", "2")[1]
    (home / "conftest.py").write_text(CRASHING)
    status, crashing = run(home, f"--probe-dump={dump}", "--probe-out=crashing", "-n", "2", "--confcutdir=.", ".")
    (home / "conftest.py").unlink()
    found = [json.loads(line) for line in results(home / "crashing")]
    errors = sum(result["kind"] == "crash" for result in found)
    print(f"{CASES} cases of which {CRASHES} crash: {len(found)} results, {errors} errors, exit status {status}")
    one = (crashing - healthy) / CRASHES
    (home / "conftest.py").write_text("import torch")
    start = min(run(home, f"--probe-dump={dump}", ".", "--confcutdir=.", "--co", "-qq")[1] for _ in range(ROUNDS))
    (home / "conftest.py").unlink()
    print(
        f"CPU of one crash: {one:.2f} s; of a process that imports torch and collects: {start:.2f} s: {one / start:.2f}"
    )


def children(process: int) -> Iterator[int]:
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        for child in path.read_text().split():
            yield int(child)
            yield from children(int(child))


def victim(process: int, whole: bool) -> int:
    """The process itself, or one of its workers, where there is one yet."""
    workers = [] if whole else [child for child in children(process) if b"stdin.readline" in _command(child)]
    return random.choice(workers) if workers else process


def _command(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def written(out: Path) -> int:
    """How many results there are."""
    path = out / "results.jsonl"
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def killed(home: Path, args: Sequence[str], out: Path, whole: bool) -> int:
    """Start a run, kill it or a process of it once it has a random number of results; its exit status."""
    wanted = random.randrange(CASES)
    with (home / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [*PYTEST, *args, f"--probe-out={out}"], cwd=home, env=environment(), stdout=log, stderr=log
        )
    while written(out) < wanted and process.poll() is None:
        time.sleep(0.001)
    # Wherever it is by now in a case, or between two.
    time.sleep(random.uniform(0.0, 0.01))
    if process.poll() is None:
        os.kill(victim(process.pid, whole), signal.SIGKILL)
    return process.wait()


def kills(home: Path, count: int) -> None:
    dump = write_dump(home / "dump.json", CASES)
    run(home, f"--probe-dump={dump}", "--probe-out=undisturbed")
    expected = results(home / "undisturbed")
    # Is it the whole run that is killed, and what is it given?
    ways: Sequence[tuple[bool, list[str]]] = (
        (True, []),
        (True, ["-n", "2"]),
        (False, ["-n", "2"]),
        (False, ["--probe-isolate"]),
    )
    differing = died = partial = 0
    for number in range(count):
        whole, more = ways[number % len(ways)]
        out = home / f"killed{number}"
        args = [f"--probe-dump={dump}", *more]
        died += killed(home, args, out, whole) < 0
        partial += 0 < written(out) < CASES
        run(home, *args, f"--probe-out={out}", "--probe-resume")
        differing += results(out) != expected
    print(
        f"{count} runs killed ({died} of them as a whole, {partial} with a part of their results), then resumed: "
        f"{differing} differ from a run that nobody disturbed"
    )


def isolation(home: Path) -> None:
    ways: Sequence[list[str]] = ([], ["--probe-isolate"])
    pairs = [[run(home, f"--probe-dump={GPT}", *way)[1] for way in ways] for _ in range(PAIRS)]
    ratios = sorted(isolated / plain for plain, isolated in pairs)
    plain, isolated = (min(seconds) for seconds in zip(*pairs, strict=True))
    print(
        f"cases/gpt: {plain:.2f} s of CPU, {isolated:.2f} s with --probe-isolate: {median(ratios):.2f}, the median of "
        f"{PAIRS} pairs of runs ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    )


def finished(home: Path) -> None:
    """The results are those of one case under other names: what counts is to read and to count them."""
    dump = write_dump(home / "large.json", LARGE)
    out = home / "large"
    run(home, f"--probe-dump={dump}", f"--probe-out={out}", "--probe-api=Functional.relu.0.forward")
    (line,) = (out / "results.jsonl").read_text().splitlines()
    names = (f"large.json::Functional.relu.{number}.forward" for number in range(LARGE))
    (out / "results.jsonl").write_text("".join(json.dumps({**json.loads(line), "id": name}) + "\n" for name in names))
    args = [f"--probe-dump={dump}"]
    collected = min(run(home, *args, "--co", "-qq")[1] for _ in range(ROUNDS))
    resumed = min(run(home, *args, f"--probe-out={out}", "--probe-resume")[1] for _ in range(ROUNDS))
    print(
        f"{LARGE:,} results: {collected:.2f} s of CPU to collect, {resumed:.2f} s to resume: {resumed / collected:.2f}"
    )


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        finished(home)
        isolation(home)
        crashes(home)
        kills(home, count)


if __name__ == "__main__":
    main()
