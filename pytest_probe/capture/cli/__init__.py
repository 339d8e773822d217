"""`pytest-probe capture` and `pytest-probe time`: they run a program and record or time its calls."""

from __future__ import annotations
