"""What lies in memory that malloc gives, and nobody has written to."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

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
