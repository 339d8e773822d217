"""--probe-unique: records that are the same call run once."""

from __future__ import annotations
