"""The process of a rank, before it imports anything: it ends with the one that started it, also while a framework is
imported or a collective hangs.

python -m pytest_probe.features.collectives.rank_start PROGRAM PIPE PARENT
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
import threading
import time
from contextlib import suppress

# prctl(2).
_PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # It may have died before, and other systems have no such call.
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


if __name__ == "__main__":
    end_with(int(sys.argv[3]))
    importlib.import_module(sys.argv[1]).main(int(sys.argv[2]))
