"""What crosses rooms: plain data about dumps, cases, runs, comparisons, verdicts and results."""

from __future__ import annotations
