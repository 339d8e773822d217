"""A tool's standard: what the table of a release makes of an output, by one rule of msprobe's lists or by a status,
which needs no benchmark."""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec.structs import replace

from pytest_probe.errors import Unsupported
from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import Metric, OutputVerdict
from pytest_probe.numerics.conventions import Convention
from pytest_probe.numerics.tool_metrics import Measures, measure
from pytest_probe.standards.tools.metrics import against_reference, is_dropout, is_float, refuse_random, verdict
from pytest_probe.standards.tools.release import Check, Release, Status, packaged_release
from pytest_probe.standards.tools.rules import FORMULAS, PASS, RuleVerdict, binary, zeros
from pytest_probe.standards.tools.table import ANY, BENCHMARK, Entry, Rule, RuleLimits, Table, packaged


class Tool:
    """name is that of --probe-standard. table: with the project's entries, which the documented rules ask first.

    Slips of a tool that decide are in its table; docs/tool-standards.md lists them, and where this differs.
    """

    def __init__(self, name: str, release: Release, table: Table | None = None) -> None:
        self.name = name
        self.release = release
        listed = [Entry(api, ANY, rule, {}, "") for rule, apis in release.lists.items() for api in apis]
        self.lists = packaged().with_entries(listed)
        # Of equal entries the last one counts: the project's.
        self.table = self.lists.with_entries(() if table is None else table.entries)

    def judge(self, comparison: Comparison) -> OutputVerdict:
        """The verdict. Raises Unsupported where the tool has none for such an output."""
        if self.release.rule != "status":
            return self._judged_by(comparison, self._rule(comparison.call.api, comparison.actual.dtype.name))
        how = self.release.status
        refuse_random(comparison, counts_zeros=how.zeros_of_dropout)
        measures = against_reference(comparison, self.release)
        if how.zeros_of_dropout and is_dropout(comparison):
            return verdict(comparison, self.name, zeros(comparison.actual, comparison.expected), measures)
        if how.empty == "skip" and not measures.count:
            raise Unsupported(f"{comparison.name}: the tool compares no empty tensors", "no table judges it")
        return verdict(comparison, self.name, self.status(comparison.actual.dtype.name, measures), measures)

    def status(self, dtype: str, measures: Measures) -> RuleVerdict:
        """The Status of a row of the details file."""
        how = self.release.status
        if how.empty == "error" and not measures.count:
            return RuleVerdict("error", "the tool fails empty tensors")
        if how.comparable is not None and dtype not in how.comparable:
            return RuleVerdict("error", f"the tool cannot compare {dtype}")
        if how.integers == "exact" and not dtype.startswith(("float", "bfloat")):
            return binary(measures)
        return status(how, dtype, measures)

    def _judged_by(self, comparison: Comparison, rule: Rule) -> OutputVerdict:
        refuse_random(comparison)
        rule = _for_dtype(rule, comparison)
        measures = measured_for(comparison, rule, self.release)
        ruling = ruled(rule, comparison.actual.dtype.name, measures, self.release)
        if is_dropout(comparison):
            ruling = zeros(comparison.actual, comparison.expected)
        more: dict[str, Metric] = {"rule": rule.name}
        return verdict(comparison, self.name, justified(ruling, rule), measures, {**more, **justification(rule)})

    def _rule(self, api: str, dtype: str) -> Rule:
        listed, wanted = self.table.rule(api, dtype), self.release.rule
        if wanted in ("listed", listed.name):
            return listed
        return Rule(wanted, self.table.limits_of(wanted, dtype) or self.table.limits_of(wanted, "float32") or {})

    def rule_of(self, api: str, dtype: str) -> str:
        """The rule whose columns the tool's comparison wants filled for a floating dtype."""
        return self.lists.rule(api, dtype).name if self.release.columns.listed else BENCHMARK


def _for_dtype(rule: Rule, comparison: Comparison) -> Rule:
    if not is_float(comparison):
        return Rule("binary", {}, rule.justification)
    if rule.name == BENCHMARK and comparison.actual.dtype.name.startswith("float8"):
        # A relative error of 1 % is nothing there; msprobe 26 judges float8 by ULP.
        return Rule("ulp", packaged().limits_of("ulp", "bfloat16") or {}, rule.justification)
    return rule


def justification(rule: Rule) -> Mapping[str, Metric]:
    return {"justification": rule.justification} if rule.justification else {}


def justified(ruling: RuleVerdict, rule: Rule) -> RuleVerdict:
    """With the project's words where its own limits decided."""
    if not rule.justification:
        return ruling
    why = f"limits of the project's own: {rule.justification}"
    return replace(ruling, reason=f"{ruling.reason}; {why}" if ruling.reason else why)


def measured_for(comparison: Comparison, rule: Rule, release: Release | None = None) -> Measures:
    """By the convention of a release, msprobe's own where none is given, with the rule's limits."""
    if not is_float(comparison):
        return measure(comparison.actual, comparison.expected, Convention())
    convention = (release or packaged_release("msprobe")).convention_of(comparison.actual.dtype)
    return measure(comparison.actual, comparison.expected, limited(convention, rule.limits))


def limited(base: Convention, limits: RuleLimits) -> Convention:
    """With what a rule takes for small and for close. Accumulative errors: values up to 1 are small, and one bound is
    both tolerances."""
    if "rtol" in limits:
        small = limits["small_value_atol"]
        return replace(
            base, rtol=limits["rtol"], small_value=limits["small_value"], small_atol=small, absolute_atol=small
        )
    if "over" in limits:
        return replace(base, ulp_threshold=limits["over"])
    if "bound" in limits:
        return replace(base, small_value=1.0, absolute_atol=limits["bound"], rtol=limits["bound"])
    return base


def ruled(rule: Rule, dtype: str, measures: Measures, release: Release | None = None) -> RuleVerdict:
    """What the rule finds; the benchmark rule has none to compare with, and gives the release's status (msprobe's own
    where none is given) instead."""
    if rule.name == BENCHMARK:
        return status((release or packaged_release("msprobe")).status, dtype, measures)
    return FORMULAS[rule.name](measures, rule.limits)


# A side with no larger magnitude counts as zero, and has no cosine.
ZERO = 2.0**-52
# Within which relative error a share counts the elements.
WITHIN = {"hundredth_ratio": 0.01, "thousandth_ratio": 0.001, "ten_thousandth_ratio": 0.0001}
WITHIN |= {"five_thousandth_ratio": 0.005}
NAMES = {"max_abs_error": "largest absolute error"}


def status(how: Status, dtype: str, measures: Measures) -> RuleVerdict:
    """What the table's formula says, or the first of its checks that decides. Where none decides, the output passes."""
    if how.formula is not None:
        return FORMULAS[how.formula](measures, how.limits)
    for check in how.checks:
        if check.dtypes and dtype not in check.dtypes:
            continue
        trouble = _trouble(check, measures, nan_passes=how.nan_cosine == "pass")
        if trouble is None and how.missing == "error":
            return RuleVerdict("error", "the tool has no metrics for it")
        if trouble and check.then is None:
            return RuleVerdict(check.otherwise, trouble)
        if trouble == "" and check.then is not None:
            return RuleVerdict(check.then)
    return PASS


def _trouble(check: Check, measures: Measures, *, nan_passes: bool) -> str | None:
    """Why a metric is not as the check wants it; "" where it is, None where it does not apply."""
    if check.metric == "cosine":
        return _cosine_trouble(check, measures, nan_passes=nan_passes)
    value: float | None = getattr(measures, check.metric)
    if value is None or check.holds(value):
        return None if value is None else ""
    if check.metric in WITHIN:
        share = f"{value:.5g} of the elements are within {WITHIN[check.metric]:g}"
        return f"{share}, must be {'more' if check.side == 'above' else 'less'} than {check.limit:g}"
    return f"{NAMES.get(check.metric, check.metric)} {value:.3g}, must be {check.side} {check.limit}"


def _cosine_trouble(check: Check, measures: Measures, *, nan_passes: bool) -> str | None:
    """None for one element, and for zeros twice; a side of zeros alone is one."""
    distance = measures.cosine_distance
    if distance is not None:
        fine = check.holds(1 - distance) or (nan_passes and math.isnan(distance))
        return "" if fine else f"cosine {1 - distance:.6g}, must be {check.side} {check.limit}"
    actual, expected = measures.actual_magnitude, measures.expected_magnitude
    if measures.count == 1 or actual is None or expected is None or (actual <= ZERO) == (expected <= ZERO):
        return None
    return f"all of the {'output' if actual <= ZERO else 'reference'} is zero, and the other side is not"
