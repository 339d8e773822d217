"""--probe-resume: a run goes on where an earlier one ended."""

from __future__ import annotations
