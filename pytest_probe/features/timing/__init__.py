"""--probe-mode=time: the time and the memory of each case."""

from __future__ import annotations
