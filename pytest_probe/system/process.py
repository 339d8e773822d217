"""This process: its garbage collection, its idle threads, the frames that a crash prints, and its end."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FunctionType
from typing import Any, TypeVar


@contextmanager
def paused_gc() -> Iterator[None]:
    """Pause garbage collection while millions of objects are made that stay: it costs several times what decoding
    costs, and finds nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


T = TypeVar("T")


def _call(function: Callable[[], Any]) -> Any:
    return function()


def call_below_frame(name: str, function: Callable[[], T]) -> T:
    """Call the function below a frame of this name. When native code ends the process, faulthandler, which pytest
    enables, prints the names of all frames, and no Python code can run any more to say what ran."""
    names = {"co_name": name, "co_filename": "<pytest-probe item>"}
    if sys.version_info >= (3, 11):
        names["co_qualname"] = name
    found: T = FunctionType(_call.__code__.replace(**names), {})(function)  # type: ignore[arg-type]
    return found


# A user who sets one of these decides; the first is OpenMP's own.
SETTINGS = ("OMP_WAIT_POLICY", "OMP_NUM_THREADS", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")


def wait_passively() -> None:
    """Let the threads of a framework that is imported later sleep between calls. A dump's calls are small: threads that
    spin until the next one take twice the CPU time of all else, from other processes, too."""
    if not any(name in os.environ for name in SETTINGS):
        os.environ[SETTINGS[0]] = "PASSIVE"


# prctl(2): the signal that this process gets when its parent dies.
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Linux kills this process when its parent dies, even if a kernel hangs and nobody reads what it writes."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
