"""What --probe-timeout costs a case: `python benchmarks/limit_cost.py [BUSY]`.

Microseconds of CPU and of wall time by which 2,000 cases of about a millisecond each take longer with a limit: by the
system's alarm, and by faulthandler's thread, which serves where the alarm is not free. First alone, then beside BUSY
processes that do nothing but count (default: twice as many as there are cores).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from pytest_probe.features.timeout import Limit

CASES, WORK = 2_000, 20_000
CONFIG: Any = SimpleNamespace(pluginmanager=SimpleNamespace(hasplugin=lambda name: False))
COUNTS = "while True: pass"


def taken(limited: Callable[[], AbstractContextManager[None]]) -> tuple[float, float]:
    """Microseconds of CPU and of wall time a case."""
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(CASES):
        with limited():
            sum(range(WORK))
    return 1e6 * (time.process_time() - cpu) / CASES, 1e6 * (time.perf_counter() - wall) / CASES


@contextmanager
def alarm_taken() -> Iterator[None]:
    """Who has a handler for the alarm uses it."""
    signal.signal(signal.SIGALRM, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def main(busy: str = "") -> None:
    count = int(busy or 2 * (os.cpu_count() or 1))
    limit = Limit(CONFIG, 600.0, None, None)
    for beside in (0, count):
        others = [subprocess.Popen([sys.executable, "-c", COUNTS]) for _ in range(beside)]
        try:
            plain = taken(nullcontext)
            for name, surroundings in (("alarm", nullcontext), ("thread", alarm_taken)):
                with surroundings():
                    more = [with_it - without for with_it, without in zip(taken(limit.case), plain, strict=True)]
                words = "beside {} busy processes, {:<6}: {:6.1f} us of CPU, {:7.1f} us of wall time"
                print(words.format(beside, name, *more))
        finally:
            for other in others:
                other.kill()
                other.wait()
    limit.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
