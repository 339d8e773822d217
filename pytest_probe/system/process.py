"""This process: its garbage collection, its idle threads, its memory, what it writes to stderr, its extensions in C,
and its end."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from types import ModuleType
from typing import Any


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


@contextmanager
def hidden_noise() -> Iterator[None]:
    """What Python and C++ write to stderr in here is shown only where it ends in an error: MindSpore, built for NumPy
    1, writes much while it is imported and makes its first tensor."""
    import tempfile

    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        shown = True
        os.dup2(file.fileno(), 2)
        try:
            with contextlib.redirect_stderr(os.fdopen(os.dup(2), "w", encoding="utf-8")) as text:
                yield
                text.close()
            shown = False
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            if shown:
                file.seek(0)
                os.write(2, file.read())


# Bytes that make a large number of either sign in each floating dtype: -1.2e30 and 1.2e30 in float32.
NEGATIVE, POSITIVE = 0xF1, 0x71
# glibc's M_PERTURB: from then on malloc fills what it gives with the byte's complement; 0 ends that.
_PERTURB, _WHOLE = -6, 0xFF


@contextmanager
def filled_allocations(byte: int) -> Iterator[None]:
    """What malloc gives in here is full of a byte, other than 255; as it is where the C library cannot do that."""
    set_option = _mallopt()
    if set_option is None:
        yield
        return
    set_option(_PERTURB, byte ^ _WHOLE)
    try:
        yield
    finally:
        set_option(_PERTURB, 0)


@cache
def _mallopt() -> Callable[[int, int], Any] | None:
    with suppress(AttributeError, OSError, TypeError):
        found: Callable[[int, int], Any] = ctypes.CDLL(None).mallopt
        return found
    return None


def load_extension(name: str, revision: int) -> tuple[ModuleType | None, str]:
    """The extension in C that a wheel may have, of a revision of its source, and the instructions that it uses on this
    CPU; or None and the reason."""
    try:
        found = importlib.import_module(name)
    except ModuleNotFoundError:
        return None, "none was built for this Python"
    except Exception as error:  # another platform's, or a damaged one
        return None, f"it cannot be loaded: {error}"
    if getattr(found, "REVISION", None) != revision:
        return None, "it was built from another source; install pytest-probe again"
    return found, found.INSTRUCTIONS
