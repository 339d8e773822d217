"""--probe-html: a page about a run, and `pytest-probe report`."""

from __future__ import annotations
