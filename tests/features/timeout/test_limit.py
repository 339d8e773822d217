"""The time limit of a case that waits for another process."""

from __future__ import annotations

import signal
import subprocess
import sys

WAITS = """
import time
from types import SimpleNamespace
from pytest_probe.features.timeout import Limit

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
    assert done.returncode == -signal.SIGALRM
    assert 'File "<string>", line 15 in <module>\n' in done.stderr


BUSY = """
import signal
signal.signal(signal.SIGALRM, lambda *_: print("theirs", flush=True))
signal.setitimer(signal.ITIMER_REAL, 0.5)
"""


def test_an_alarm_that_others_use_is_left_to_them() -> None:
    program = WAITS.replace("limit = Limit", f"{BUSY}limit = Limit")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50)
    assert done.stdout == "no case runs\ntheirs\nit waited\n"
    assert done.returncode == 1
    assert "Timeout (0:00:01)!" in done.stderr


NESTED = """
import time
from types import SimpleNamespace
from pytest_probe.features.timeout import Limit

config = SimpleNamespace(pluginmanager=SimpleNamespace(hasplugin=lambda name: False))
outer, inner = Limit(config, 1.0, None, None), Limit(config, 1.0, None, None)
with inner.case():
    pass
inner.close()
with outer.case():
    time.sleep(60)
"""


def test_a_run_inside_another_leaves_that_one_its_stacks() -> None:
    done = subprocess.run([sys.executable, "-c", NESTED], capture_output=True, text=True, timeout=50)
    assert done.returncode == -signal.SIGALRM
    assert 'File "<string>", line 12 in <module>\n' in done.stderr
