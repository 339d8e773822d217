"""The three-party verdict: a device's row and a benchmark's, both measured against the same reference. It comes of the
ratios of their errors, of a rule, or of both."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from pytest_probe.model.verdict import SEVERITY
from pytest_probe.numerics.tool_metrics import Measures
from pytest_probe.standards.tools.release import ThreeParty
from pytest_probe.standards.tools.rules import PASS, RuleVerdict, binary, ulp, within
from pytest_probe.standards.tools.table import BENCHMARK, Rule, Table
from pytest_probe.standards.tools.tool import ruled

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


def worst_ratio(found: tuple[ComparedMetric, ...]) -> RuleVerdict:
    """The worst of the ratios that count."""
    counted = [item.ruling for item in found if item.metric != BALANCE]
    return max(counted, key=lambda ruling: SEVERITY[ruling.verdict], default=PASS)


THREE = ("float16", "bfloat16", "float32")
WIDE_NAMES = ("float64", "complex64", "complex128")
UNSUPPORTED = RuleVerdict("skip", "this data type does not support benchmark compare")
EMPTY_SKIPPED = RuleVerdict("skip", "the tool compares no empty tensors")


class Decision(Struct, frozen=True):
    """rule: which one judged, "" where none did; compared: the benchmark rule's ratios, or the balance of accumulative
    errors; over_ratio: the ULP rule's, of both shares of elements beyond the threshold."""

    rule: str
    ruling: RuleVerdict
    compared: tuple[ComparedMetric, ...] = ()
    over_ratio: float | None = None


class Compare(Struct, frozen=True):
    """lists: those that say which rule judges an API, where how asks them."""

    how: ThreeParty
    lists: Table

    def __call__(self, api: str, dtype: str, device: Measures, benchmark: Measures) -> Decision:
        """The verdict on one output of an API ("Functional.linear"), and the rule that judged. dtype: the device's."""
        how = self.how
        if how.empty == "skip" and not device.count:
            return Decision("", EMPTY_SKIPPED)
        if how.wide == "skip" and dtype in WIDE_NAMES:
            return Decision("", UNSUPPORTED)
        if dtype not in (*THREE, *WIDE_NAMES) and not dtype.startswith("float8"):
            return Decision("binary", binary(device))
        if how.float8_ulp is not None and dtype.startswith("float8"):
            return Decision("ulp", ulp(device, how.float8_ulp))
        return self._by_rule(api, dtype, device, benchmark)

    def _by_rule(self, api: str, dtype: str, device: Measures, benchmark: Measures) -> Decision:
        how = self.how
        rule = self.lists.rule(api, dtype) if how.listed else Rule(BENCHMARK, {})
        ratios = Ratios(how.floor(dtype), how.nonfinite)
        if rule.name == BENCHMARK and dtype in WIDE_NAMES:
            return Decision("", UNSUPPORTED)
        if rule.name == BENCHMARK:
            found = compared(device, benchmark, ratios, how.limits_of(api), warns=how.warns)
            return Decision(BENCHMARK, worst_ratio(found), found)
        if rule.name == "ulp":
            ratio = ratios.of(device.ulp_over_ratio, benchmark.ulp_over_ratio)
            ruling = ulp(device, how.ulp or rule.limits, benchmark, ratios.floor or 0.0)
            return Decision("ulp", ruling, over_ratio=ratio)
        balance = (_balance(device, rule.limits["error_balance"]),) if rule.name == "accumulative" else ()
        return Decision(rule.name, ruled(rule, dtype, device), balance)


def _balance(device: Measures, limit: float) -> ComparedMetric:
    balance = device.error_balance or 0.0
    return ComparedMetric(BALANCE, balance, PASS if within(balance, limit) else RuleVerdict("error"))
