"""What an item leaves in memory: `python benchmarks/item_memory.py`.

Bytes that are still taken when a run ends, for each item after the first 700, as tracemalloc counts them: of the step
of cases/gpt, four times, without reports and with four, and of as many empty tests, which is what pytest keeps of any
test.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.failing_items import write_dump  # noqa: E402

FIRST = 700
EMPTY = "import pytest\n@pytest.mark.parametrize('number', range(1288))\ndef test_nothing(number): pass\n"
REPORTS = ("--probe-html=page.html", "--probe-history=history.db", "--junitxml=junit.xml", "--probe-out=out")
PLUGINS = ("-p", "benchmarks.item_memory", "-p", "no:cacheprovider", "-q")


class Counted:
    """As a plugin: items that ended, and bytes taken when the first ones had."""

    items = 0
    before = 0


def pytest_runtest_logfinish() -> None:
    Counted.items += 1
    if Counted.items == FIRST:
        gc.collect()
        tracemalloc.start()
        Counted.before = tracemalloc.get_traced_memory()[0]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    if Counted.items > FIRST:
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - Counted.before
        print(f"\nkept {taken / (Counted.items - FIRST):.0f}")


def kept(folder: Path, *options: str) -> int:
    """Bytes an item."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", *PLUGINS, "-s", *options]
    told = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout
    return int(next(line for line in told.splitlines() if line.startswith("kept ")).split()[1])


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        write_dump(folder / "dump.json")
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "test_empty.py").write_text(EMPTY)
        options = ("-p", "pytest_probe.plugin", "--probe-dump=dump.json", "--probe-device=cpu")
        ours, reported = kept(folder, *options), kept(folder, *options, *REPORTS)
        empty = kept(folder, "test_empty.py")
    print(f"with html, history, junit and Markdown {reported:,} bytes an item")
    print(f"an item of a dump {ours:,} bytes, an empty test {empty:,} bytes: {ours - empty:,} more")


if __name__ == "__main__":
    main()
