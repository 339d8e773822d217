"""The demo and the tests marked `compat`, with the torch of each of these interpreters, as a Markdown table.

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
HEAD = "| torch | Python | pytest | demo | demo in 16 bit | tests marked compat |"
VERSIONS = (
    "import platform, pytest, torch; print(torch.__version__, platform.python_version(), pytest.__version__, sep=' | ')"
)
RUNS = (
    ("--probe-dump=cases/gpt", "--probe-device=cpu"),
    ("--probe-dump=cases/gpt", "--probe-device=cpu", "--probe-dtype=bfloat16,float16"),
    ("-m", "compat", "tests"),
)


def row(python: str) -> tuple[list[str], bool]:
    """The cells for an interpreter, and whether all went well."""
    versions = _run([python, "-c", VERSIONS])
    if versions.returncode:
        return [f"{python}: {_last_line(versions.stderr)}", *[""] * (HEAD.count("|") - 2)], False
    runs = [_run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]) for options in RUNS]
    told = [_last_line(run.stdout) or _last_line(run.stderr) for run in runs]
    return [*versions.stdout.strip().split(" | "), *told], not any(run.returncode for run in runs)


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
