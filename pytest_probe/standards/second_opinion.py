"""Where noise is content: does the API's own table say error, though the correctly rounded result would pass it?"""

from __future__ import annotations

from dataclasses import replace

from pytest_probe.numerics.dtypes import AnyArray, float_format, widen
from pytest_probe.standards.by_rule import justification, justified, measured_for, ruled
from pytest_probe.standards.exact import correctly_rounded
from pytest_probe.standards.measured import differing, is_float
from pytest_probe.standards.question import Question
from pytest_probe.standards.ruling import Ruling
from pytest_probe.standards.table import BENCHMARK, Rule, Table
from pytest_probe.standards.verdict import TABLE, OutputVerdict

WARN = ("absolute_threshold", "ulp", "binary")


def with_table(question: Question, verdict: OutputVerdict, table: Table, standard: str) -> OutputVerdict:
    """The verdict, or a warning that names the table's metric."""
    rule = table.rule(question.api, question.actual.dtype.name)
    if question.emulated or not is_float(question) or not _asked(rule, question):
        return verdict
    found = _judged(question, rule)
    if found.verdict != "error":
        return verdict
    if _judged(replace(question, actual=_right(question)), rule).verdict == "error":
        return verdict
    reason = f"noise is content, msprobe's table for the API is not: {found.reason}"
    metrics = {**verdict.metrics, TABLE: rule.name, **justification(rule)}
    return replace(
        verdict, verdict="warning", standard=standard, reason=reason, metrics=metrics, worst=differing(question)
    )


def _right(question: Question) -> AnyArray:
    """The reference rounded once, to what the output's dtype carries: 16 bit in a float32 gradient of autocast."""
    rounded = correctly_rounded(question.expected, question.precision)
    return correctly_rounded(widen(rounded), question.actual.dtype)


def _asked(rule: Rule, question: Question) -> bool:
    """What a project asks for itself, too; but healthy 16-bit numbers are often a thousandth off."""
    if rule.name in WARN:
        return True
    narrow = float_format(question.actual.dtype).precision < float_format("float32").precision
    return bool(rule.justification) and rule.name != BENCHMARK and not (rule.name == "thousandth" and narrow)


def _judged(question: Question, rule: Rule) -> Ruling:
    return justified(ruled(rule, question.actual.dtype.name, measured_for(question, rule)), rule)
