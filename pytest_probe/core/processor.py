"""The machine's processor."""

from __future__ import annotations

import platform
from contextlib import suppress
from functools import cache
from pathlib import Path


@cache
def processor() -> str:
    """What the processor is called, as far as the system tells: kernels are chosen by it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Processor", "cpu model"):
                return value.strip()
    return platform.processor() or platform.machine()
