"""The machine's processor."""

from __future__ import annotations

import platform
from contextlib import suppress
from functools import cache
from pathlib import Path


@cache
def processor() -> str:
    """The processor's name, as far as the system gives it: libraries choose kernels by it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Processor", "cpu model"):
                return value.strip()
    return platform.processor() or platform.machine()


@cache
def last_level_cache() -> int:
    """Bytes of the largest cache that the first core sees, 0 where the system does not say."""
    found = [0]
    for size in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with suppress(OSError, ValueError, LookupError):
            text = size.read_text().strip()
            found.append(int(text[:-1]) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[text[-1]])
    return max(found)
