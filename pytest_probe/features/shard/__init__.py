"""--probe-shard: one part of a run, and `pytest-probe merge` of all parts."""

from __future__ import annotations
