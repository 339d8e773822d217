"""The demo and the tests marked `compat`, with the torch of each of these interpreters, as a Markdown table; with the
Paddle of those that have it, Paddle's demo and its replays; with the MindSpore of those that have that, its replays.

    python benchmarks/compat.py .venv-torch-2.6.0/bin/python ...

`make compat` makes the environments. Exit status: 1 where anything failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
HEAD = "| framework | Python | pytest | demo | demo in 16 bit | tests |"
VERSIONS = """
import importlib.util, platform, pytest
name = next((each for each in ("mindspore", "paddle") if importlib.util.find_spec(each)), "torch")
version = f"{name} {importlib.import_module(name).__version__}"
print(version, platform.python_version(), pytest.__version__, sep=" | ")
"""
CPU = "--probe-device=cpu"
NARROW = "--probe-dtype=bfloat16,float16"
RUNS = {
    "torch": (("--probe-dump=cases/gpt", CPU), ("--probe-dump=cases/gpt", CPU, NARROW), ("-m", "compat", "tests")),
    "paddle": (
        ("--probe-dump=cases/paddle-gpt", CPU),
        ("--probe-dump=cases/paddle-gpt", CPU, NARROW),
        ("tests/check/test_paddle.py", "tests/capture/paddle/test_recording.py"),
    ),
    # Its CPU is wrong in 16 bit: generated inputs instead.
    "mindspore": (
        ("--probe-dump=tests/data/mindspore/mlp.zip",),
        ("--probe-dump=tests/data/mindspore/mlp-statistics.zip",),
        ("-m", "mindspore", "tests/acceptance/test_mindspore_replay.py"),
    ),
}


def row(python: str) -> tuple[list[str], bool]:
    """The cells for an interpreter, and whether all went well."""
    versions = _run([python, "-c", VERSIONS])
    if versions.returncode:
        return [f"{python}: {_last_line(versions.stderr)}", *[""] * (HEAD.count("|") - 2)], False
    cells = _last_line(versions.stdout).split(" | ")
    common = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    runs = [_run([*common, *options]) for options in RUNS[cells[0].split()[0]]]
    told = [_last_line(run.stdout) or _last_line(run.stderr) for run in runs]
    return [*cells, *told], not any(run.returncode for run in runs)


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def _last_line(text: str) -> str:
    """What pytest tells at its end, without the time that it took."""
    lines = text.split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    return last.strip(" =").split(" in ")[0]


def table(pythons: Sequence[str]) -> Iterator[tuple[str, bool]]:
    yield HEAD, True
    yield "|---" * (HEAD.count("|") - 1) + "|", True
    for python in pythons:
        cells, well = row(python)
        yield f"| {' | '.join(cells)} |", well


def main() -> int:
    status = 0
    # As given: resolving the link would leave the environment.
    for line, well in table([os.path.abspath(python) for python in sys.argv[1:]]):
        print(line, flush=True)
        status |= not well
    return status


if __name__ == "__main__":
    sys.exit(main())
