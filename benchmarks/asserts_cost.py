"""What --probe-asserts costs where no assert fails: `python benchmarks/asserts_cost.py [ROUNDS]` (5 by default).

User and system CPU time of a whole run of pytest, the least of several rounds in turns, since what else the machine
does only adds to it: 10,000 passing asserts in 100 tests, on tensors of 64 x 64 elements, and of 1,024 x 1,024 in a
suite of 200. The first figure is of the whole run, the second of it without what the imports of torch and NumPy take.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

SUITE = """
import numpy as np
import pytest
import torch
from torch.testing import assert_close

x = torch.randn({size}, {size})
y = x + 1e-7
a, b = x.numpy(), y.numpy()


@pytest.mark.parametrize("number", range({tests}))
def test_close(number):
    for _ in range({asserts} // 4):
        assert_close(x, y)
        assert torch.allclose(x, y, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)
        np.testing.assert_array_almost_equal(a, b, decimal=4)
"""
SUITES = {
    "10,000 asserts, 64 x 64": {"size": 64, "tests": 100, "asserts": 100},
    "200 asserts, 1,024 x 1,024": {"size": 1024, "tests": 10, "asserts": 20},
}
NOTHING = "import numpy, torch\ndef test_nothing(): pass\n"
WAYS = {"without": (), "--probe-asserts": ("--probe-asserts",), "--probe-asserts=all": ("--probe-asserts=all",)}


def seconds(file: Path, *options: str) -> float:
    """User and system CPU seconds of a run in a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "pytest_probe.plugin"]
    process = subprocess.Popen(
        [*command, str(file), *options], cwd=file.parent, env=environment, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return usage.ru_utime + usage.ru_stime


def measure(folder: Path, rounds: int) -> None:
    """Print a line for each suite and each way."""
    empty = folder / "test_nothing.py"
    empty.write_text(NOTHING, encoding="utf-8")
    for title, sizes in SUITES.items():
        file = folder / f"test_{sizes['size']}.py"
        file.write_text(SUITE.format(**sizes), encoding="utf-8")
        found = [[seconds(empty), *(seconds(file, *options) for options in WAYS.values())] for _ in range(rounds)]
        imports, *taken = (min(column) for column in zip(*found, strict=True))
        for way, took in zip(WAYS, taken, strict=True):
            alone = (took - imports) / (taken[0] - imports)
            print(f"{title:<28} {way:<20} {took:7.2f} s  {took / taken[0]:6.3f} times  [{alone:6.3f}]")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        measure(Path(name), int(sys.argv[1]) if len(sys.argv) > 1 else 5)
