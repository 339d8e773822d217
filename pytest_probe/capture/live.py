"""A line that shows that a capture lives: always the newest on a terminal, one a minute in a log."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from pytest_probe.capture.recorder import say

_SECOND, _MINUTE = 1.0, 60.0


@contextmanager
def displayed(progress: Callable[[], str]) -> Iterator[None]:
    """While the program runs, what progress says."""
    ended = threading.Event()
    terminal = sys.stderr.isatty()

    def show() -> None:
        while not ended.wait(_SECOND if terminal else _MINUTE):
            # The terminal may be gone, and what is counted is written meanwhile.
            with suppress(Exception):
                if words := progress():
                    line = f"pytest-probe: {words}"
                    # The cursor goes back, so that the program's own lines stand where this was.
                    print(f"\x1b[K{line}", end="\r", file=sys.stderr, flush=True) if terminal else say(line)

    thread = threading.Thread(target=show, name="pytest-probe progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_SECOND)
        if terminal:
            print("\x1b[K", end="", file=sys.stderr, flush=True)
