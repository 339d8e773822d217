"""Memory that runs out in the middle of a case."""

from __future__ import annotations

import traceback

from pytest_probe.errors import OutOfMemory
from pytest_probe.user_errors import first_line


def out_of_memory(error: MemoryError) -> OutOfMemory:
    """The skip of a case whose memory ran out, with all that the frames of its error held given back."""
    said = first_line(error)
    link: BaseException | None = error
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return OutOfMemory(f"memory ran out ({said}); free some, or run with fewer workers")
