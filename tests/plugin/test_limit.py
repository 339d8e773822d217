"""The time limit of a case that waits for another process."""

from __future__ import annotations

import subprocess
import sys

WAITS = """
import time
from types import SimpleNamespace
from pytest_probe.plugin.limit import Limit

config = SimpleNamespace(pluginmanager=SimpleNamespace(hasplugin=lambda name: False))
limit = Limit(config, 1.0, None, None)
with limit.suspended():
    print("no case runs", flush=True)
time.sleep(1.5)
with limit.case():
    with limit.suspended():
        time.sleep(1.5)
    print("it waited", flush=True)
    time.sleep(60)
"""


def test_its_time_begins_when_it_has_waited() -> None:
    done = subprocess.run([sys.executable, "-c", WAITS], capture_output=True, text=True, timeout=50)
    assert done.stdout == "no case runs\nit waited\n"
    assert done.returncode == 1
    assert "Timeout (0:00:01)!" in done.stderr
