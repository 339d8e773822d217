"""How the threads of a framework wait for their next piece of work, which is settled when it is imported."""

from __future__ import annotations

import os

# What a user may have set who knows better; the first is OpenMP's own.
SETTINGS = ("OMP_WAIT_POLICY", "OMP_NUM_THREADS", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")


def wait_passively() -> None:
    """Let threads sleep between calls, for a framework that is imported from now on. A dump's calls are small, and
    threads that wait for the next one in a loop take twice the CPU time of all else, from other processes, too."""
    if not any(name in os.environ for name in SETTINGS):
        os.environ[SETTINGS[0]] = "PASSIVE"
