"""An output judged by one rule of msprobe's tables."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import Metric, OutputVerdict
from pytest_probe.numerics.conventions import Convention
from pytest_probe.numerics.tool_metrics import Measures, measure
from pytest_probe.standards.tools.metrics import is_dropout, is_float, refuse_random, verdict
from pytest_probe.standards.tools.release import packaged_release
from pytest_probe.standards.tools.rules import FORMULAS, RuleVerdict, zeros
from pytest_probe.standards.tools.status import status
from pytest_probe.standards.tools.table import BENCHMARK, Rule, RuleLimits, packaged


def judged_by(comparison: Comparison, rule: Rule, standard: str) -> OutputVerdict:
    refuse_random(comparison)
    rule = _for_dtype(rule, comparison)
    measures = measured_for(comparison, rule)
    ruling = ruled(rule, comparison.actual.dtype.name, measures)
    if is_dropout(comparison):
        ruling = zeros(comparison.actual, comparison.expected)
    more: dict[str, Metric] = {"rule": rule.name}
    return verdict(comparison, standard, justified(ruling, rule), measures, {**more, **justification(rule)})


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


def measured_for(comparison: Comparison, rule: Rule) -> Measures:
    if not is_float(comparison):
        return measure(comparison.actual, comparison.expected, Convention())
    return measure(comparison.actual, comparison.expected, convention_for(rule, comparison.actual.dtype))


def convention_for(rule: Rule, dtype: np.dtype) -> Convention:
    """msprobe's convention with the rule's limits."""
    return limited(packaged_release("msprobe").convention_of(dtype), rule.limits)


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


def ruled(rule: Rule, dtype: str, measures: Measures) -> RuleVerdict:
    """What the rule finds; the benchmark rule has none to compare with, and gives the three-state status instead."""
    if rule.name == BENCHMARK:
        return status(packaged_release("msprobe").status, dtype, measures)
    return FORMULAS[rule.name](measures, rule.limits)
