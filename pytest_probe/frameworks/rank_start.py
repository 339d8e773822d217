"""The process of a rank, before it imports anything: it ends with the one that started it, also while a framework is
imported or a collective hangs.

python -m pytest_probe.frameworks.rank_start PROGRAM PIPE PARENT
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time

from pytest_probe.system.process import die_with_parent


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


if __name__ == "__main__":
    die_with_parent()
    # It may have died before, and other systems have no such call.
    threading.Thread(target=_watch, args=(int(sys.argv[3]),), daemon=True).start()
    importlib.import_module(sys.argv[1]).main(int(sys.argv[2]))
