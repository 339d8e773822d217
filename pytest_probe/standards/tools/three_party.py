"""The three-party verdict: a device's row and a benchmark's, both measured against the same reference."""

from __future__ import annotations

from msgspec import Struct

from pytest_probe.numerics.tool_metrics import Measures
from pytest_probe.standards.tools import ratios as ratio_rule
from pytest_probe.standards.tools.ratios import BALANCE, ComparedMetric, Ratios, compared
from pytest_probe.standards.tools.release import ThreeParty
from pytest_probe.standards.tools.rules import PASS, RuleVerdict, binary, ulp, within
from pytest_probe.standards.tools.single_rule import ruled
from pytest_probe.standards.tools.table import BENCHMARK, Rule, Table

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
            return Decision(BENCHMARK, ratio_rule.benchmark(found), found)
        if rule.name == "ulp":
            ratio = ratios.of(device.ulp_over_ratio, benchmark.ulp_over_ratio)
            ruling = ulp(device, how.ulp or rule.limits, benchmark, ratios.floor or 0.0)
            return Decision("ulp", ruling, over_ratio=ratio)
        balance = (_balance(device, rule.limits["error_balance"]),) if rule.name == "accumulative" else ()
        return Decision(rule.name, ruled(rule, dtype, device), balance)


def _balance(device: Measures, limit: float) -> ComparedMetric:
    balance = device.error_balance or 0.0
    return ComparedMetric(BALANCE, balance, PASS if within(balance, limit) else RuleVerdict("error"))
