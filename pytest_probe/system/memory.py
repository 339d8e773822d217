"""Memory that runs out in the middle of a case.

NumPy and torch both raise `MemoryError` for it, which code of this package that catches exceptions and goes on lets
through.
"""

from __future__ import annotations

import traceback

from pytest_probe.errors import OutOfMemory
from pytest_probe.user_errors import causes, first_line


def out_of_memory(error: MemoryError) -> OutOfMemory:
    """The skip of a case whose memory ran out, with all that the frames of its error held given back."""
    given_back(error)
    return OutOfMemory(f"memory ran out ({first_line(error)}); free some, or run with fewer workers")


def given_back(error: MemoryError) -> None:
    """Let go of all that the frames of an error hold."""
    for link in causes(error):
        traceback.clear_frames(link.__traceback__)
        link.__traceback__ = None
