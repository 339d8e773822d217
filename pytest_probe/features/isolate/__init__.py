"""--probe-isolate: one worker process runs the cases."""

from __future__ import annotations
