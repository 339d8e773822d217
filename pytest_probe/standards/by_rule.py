"""One rule of the tables as a standard of its own, and as what compositions are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from pytest_probe.numerics.convention import Convention, convention
from pytest_probe.numerics.convention import accumulative as bounded
from pytest_probe.numerics.measures import Measures, measure
from pytest_probe.standards.absolute_threshold import absolute_threshold
from pytest_probe.standards.accumulative import accumulative
from pytest_probe.standards.binary import binary
from pytest_probe.standards.measured import is_dropout, is_float, refuse_random, verdict
from pytest_probe.standards.preliminary import preliminary
from pytest_probe.standards.question import Question
from pytest_probe.standards.ruling import Ruling
from pytest_probe.standards.table import BENCHMARK, Rule, Table, packaged
from pytest_probe.standards.thousandth import thousandth
from pytest_probe.standards.ulp import UlpLimits, ulp
from pytest_probe.standards.verdict import Metric, OutputVerdict
from pytest_probe.standards.zeros import zeros

REALS = {"complex64": "float32", "complex128": "float64"}


class ByRule:
    """The same rule for all floating outputs, whatever the lists say of their APIs; integers and bool exact."""

    def __init__(self, name: str, table: Table | None = None) -> None:
        self.name = name
        self.table = table or packaged()

    def judge(self, question: Question) -> OutputVerdict:
        dtype = question.actual.dtype.name
        rule = self.table.rule(question.api, dtype)
        if rule.name != self.name:
            limits = self.table.limits_of(self.name, dtype) or self.table.limits_of(self.name, "float32") or {}
            rule = Rule(self.name, limits)
        return judged_by(question, rule, self.name)


def judged_by(question: Question, rule: Rule, standard: str) -> OutputVerdict:
    refuse_random(question)
    rule = _for_dtype(rule, question)
    measures = measured_for(question, rule)
    ruling = ruled(rule, question.actual.dtype.name, measures)
    if is_dropout(question):
        ruling = zeros(question.actual, question.expected)
    more: dict[str, Metric] = {"rule": rule.name}
    return verdict(question, standard, justified(ruling, rule), measures, {**more, **justification(rule)})


def _for_dtype(rule: Rule, question: Question) -> Rule:
    if not is_float(question):
        return Rule("binary", {}, rule.justification)
    if rule.name == BENCHMARK and question.actual.dtype.name.startswith("float8"):
        # A relative error of 1 % is nothing there; msprobe 26 judges float8 by ULP.
        return Rule("ulp", packaged().limits_of("ulp", "bfloat16") or {}, rule.justification)
    return rule


def justification(rule: Rule) -> Mapping[str, Metric]:
    return {"justification": rule.justification} if rule.justification else {}


def justified(ruling: Ruling, rule: Rule) -> Ruling:
    """With the project's words where its own limits decided."""
    if not rule.justification:
        return ruling
    why = f"limits of the project's own: {rule.justification}"
    return replace(ruling, reason=f"{ruling.reason}; {why}" if ruling.reason else why)


def measured_for(question: Question, rule: Rule) -> Measures:
    if not is_float(question):
        return measure(question.actual, question.expected, Convention())
    return measure(question.actual, question.expected, convention_for(rule, question.actual.dtype))


def convention_for(rule: Rule, dtype: np.dtype) -> Convention:
    """msprobe's convention with the rule's limits, and without its slips: NaN and inf by likeness, ULP of the dtype."""
    limits = rule.limits
    base = replace(convention("msprobe-1.0", dtype), alike=True, ulp="own", widens_bfloat16=False, rmse_damping=0.0)
    if "rtol" in limits:
        small = limits["small_value_atol"]
        return replace(
            base, rtol=limits["rtol"], small_value=limits["small_value"], small_atol=small, absolute_atol=small
        )
    if "over" in limits:
        return replace(base, ulp_threshold=limits["over"])
    if "bound" in limits:
        return replace(bounded(base, dtype), absolute_atol=limits["bound"], rtol=limits["bound"])
    return base


def ruled(rule: Rule, dtype: str, measures: Measures) -> Ruling:
    """What the rule finds; the benchmark rule has none to compare with, and gives the three-state status instead."""
    limits = rule.limits
    if rule.name == "thousandth":
        return thousandth(measures, limits["ratio"])
    if rule.name == "binary":
        return binary(measures)
    if rule.name == "absolute_threshold":
        return absolute_threshold(measures)
    if rule.name == "ulp":
        return ulp(measures, UlpLimits(limits["over_ratio"], limits["mean"]))
    if rule.name == "accumulative":
        return accumulative(measures, limits["error_balance"])
    return preliminary(measures, REALS.get(dtype, dtype))
