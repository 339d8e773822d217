"""What a rule finds in the metrics of one output."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_probe.standards.verdict import Outcome


@dataclass(frozen=True, slots=True)
class Ruling:
    """reason names the metric that decided, with its value and limit; a pass needs none."""

    verdict: Outcome
    reason: str = ""


PASS = Ruling("pass")


def within(value: float | None, limit: float) -> bool:
    """value <= limit; a metric that does not apply is within, NaN is not."""
    return value is None or value <= limit


def first(*reasons: str) -> Ruling:
    """An error with the first reason that is one."""
    found = next((reason for reason in reasons if reason), "")
    return Ruling("error", found) if found else PASS
