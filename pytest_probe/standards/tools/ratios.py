"""The benchmark rule: a device's errors against those of another device, both measured against the same reference.

A ratio of two errors above its limit is an error, above 1 a warning where the tool has warnings. The balance of errors
is reported and never counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from pytest_probe.model.verdict import SEVERITY
from pytest_probe.numerics.tool_metrics import Measures
from pytest_probe.standards.tools.rules import PASS, RuleVerdict

BALANCE = "error_balance"
UNBOUNDED = 10000.0


class Ratios(Struct, frozen=True):
    """How a tool divides two errors.

    floor: what the benchmark's error counts as at least. Without one, 0 / 0 is 1 and anything else over 0 is 10,000.
    nonfinite: "alike", equal NaN and inf on both sides pass with a ratio of NaN, unequal ones are an error;
    "unbounded", any of them is a ratio of 10,000.
    """

    floor: float | None = None
    nonfinite: Literal["alike", "unbounded"] = "alike"

    def of(self, device: float | None, benchmark: float | None) -> float:
        """A metric that does not apply counts as 0. inf where NaN and inf are unlike."""
        own, other = device or 0.0, benchmark or 0.0
        if not (math.isfinite(own) and math.isfinite(other)):
            if self.nonfinite == "unbounded":
                return UNBOUNDED
            return math.nan if own == other or (math.isnan(own) and math.isnan(other)) else math.inf
        if self.floor is not None:
            return abs(own) / max(abs(other), self.floor)
        if other == 0:
            return 1.0 if own == 0 else UNBOUNDED
        return abs(own / other)


class ComparedMetric(Struct, frozen=True):
    """One metric of both: value is NaN where NaN and inf are alike on both sides, inf where they are not."""

    metric: str
    value: float
    ruling: RuleVerdict


def compared(
    device: Measures, benchmark: Measures, ratios: Ratios, limits: Mapping[str, float], *, warns: bool = True
) -> tuple[ComparedMetric, ...]:
    """The ratio of each metric in limits, judged."""
    values = {name: ratios.of(getattr(device, name), getattr(benchmark, name)) for name in limits}
    return tuple(
        ComparedMetric(name, value, _ruling(name, value, limits[name], warns)) for name, value in values.items()
    )


def _ruling(name: str, value: float, limit: float, warns: bool) -> RuleVerdict:
    words = f"benchmark: {name} is {value:.3g} times the benchmark's"
    if value == math.inf:
        return RuleVerdict("error", f"benchmark: NaN or inf in {name}, unlike the benchmark's")
    if value > limit:
        return RuleVerdict("error", f"{words}, limit {limit:g}")
    if warns and value > 1:
        return RuleVerdict("warning", f"{words}")
    return PASS


def benchmark(found: tuple[ComparedMetric, ...]) -> RuleVerdict:
    """The worst of the ratios that count."""
    counted = [item.ruling for item in found if item.metric != BALANCE]
    return max(counted, key=lambda ruling: SEVERITY[ruling.verdict], default=PASS)
