"""--probe-cache: numbers of the reference side that later runs take over."""

from __future__ import annotations
