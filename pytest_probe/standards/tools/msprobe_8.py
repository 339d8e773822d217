"""msprobe 1.2.2 to 8.3.3 as they are."""

from __future__ import annotations

from msgspec.structs import replace

from pytest_probe.numerics.tool_metrics import Measures
from pytest_probe.standards.tools.levels import floor
from pytest_probe.standards.tools.msprobe_checker import MsprobeChecker
from pytest_probe.standards.tools.ratios import BALANCE, ComparedMetric, Ratios, compared
from pytest_probe.standards.tools.rules import FLOAT32_ULP_LIMITS, PASS, ULP_NARROW, RuleVerdict, binary, within
from pytest_probe.standards.tools.single_rule import ruled
from pytest_probe.standards.tools.table import BENCHMARK, later
from pytest_probe.standards.tools.three_party import (
    EMPTY_SKIPPED,
    UNSUPPORTED,
    WIDE_NAMES,
    Decision,
    by_ratio,
    by_ulp,
    is_float_name,
)
from pytest_probe.standards.tools.thresholds import LATER


class Msprobe8(MsprobeChecker):
    name = "msprobe-8"
    help = "the verdicts of msprobe 1.2.2 to 8.3.3, bugs included"
    limits = LATER

    def rule_of(self, api: str, dtype: str) -> str:
        return later().rule(api, dtype).name

    @staticmethod
    def compare(api: str, dtype: str, device: Measures, benchmark: Measures) -> Decision:
        """The lists, with a least error that a benchmark's counts as, and no warnings."""
        if dtype in WIDE_NAMES or not device.count:
            return Decision("", UNSUPPORTED if device.count else EMPTY_SKIPPED)
        if not is_float_name(dtype):
            return Decision("binary", binary(device))
        rule, ratios = later().rule(api, dtype), Ratios(floor=floor(dtype))
        if rule.name == "ulp":
            return by_ulp(FLOAT32_ULP_LIMITS if dtype == "float32" else ULP_NARROW, device, benchmark, ratios)
        if rule.name == BENCHMARK:
            return by_ratio(dtype, compared(device, benchmark, ratios, warns=False))
        decision = Decision(rule.name, ruled(rule, dtype, device))
        if rule.name != "accumulative":
            return decision
        return replace(decision, compared=(_balance(device, rule.limits["error_balance"]),))


def _balance(device: Measures, limit: float) -> ComparedMetric:
    balance = device.error_balance or 0.0
    return ComparedMetric(BALANCE, balance, PASS if within(balance, limit) else RuleVerdict("error"))
