"""Where noise is content: does the API's own table say error, though the correctly rounded result would pass it?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pytest_probe.numerics.dtypes import AnyArray, BoolArray, float_format, widen
from pytest_probe.numerics.noise import FAN_IN_CAP, FAN_IN_START, nearest
from pytest_probe.numerics.ulp import ulp
from pytest_probe.standards.by_rule import justification, justified, measured_for, ruled
from pytest_probe.standards.exact import correctly_rounded
from pytest_probe.standards.findings import BETWEEN_STEPS
from pytest_probe.standards.measured import differing, is_float
from pytest_probe.standards.question import Question
from pytest_probe.standards.ruling import Ruling
from pytest_probe.standards.table import BENCHMARK, Rule, Table
from pytest_probe.standards.verdict import TABLE, OutputVerdict

RUNS = 2
WARN = ("absolute_threshold", "ulp", "binary")


def with_table(question: Question, verdict: OutputVerdict, table: Table, standard: str) -> OutputVerdict:
    """The verdict, or a warning that names the table's metric."""
    rule = table.rule(question.api, question.actual.dtype.name)
    if question.emulated or not is_float(question) or not _asked(rule, question):
        return verdict
    found = _judged(question, rule)
    if found.verdict != "error":
        return verdict
    if any(_judged(replace(question, actual=right), rule).verdict == "error" for right in _right(question, verdict)):
        return verdict
    reason = f"noise is content, msprobe's table for the API is not: {found.reason}"
    metrics = {**verdict.metrics, TABLE: rule.name, **justification(rule)}
    return replace(
        verdict, verdict="warning", standard=standard, reason=reason, metrics=metrics, worst=differing(question)
    )


def _right(question: Question, verdict: OutputVerdict) -> Iterator[AnyArray]:
    """The reference rounded once, to what the output's dtype carries: 16 bit in a float32 gradient of autocast. Then
    references of inputs 4 roundoffs off, and more where sums are long: where the table fails those, no kernel of that
    precision can be sure of it. Where steps of 16 bit explain the output, or the CPU's kernel does, those as well.
    """
    steps = verdict.metrics.get("scale_from") == BETWEEN_STEPS or verdict.reason.startswith("as-cpu")
    for reference in _references(question, steps):
        rounded = correctly_rounded(widen(correctly_rounded(reference, question.precision)), question.actual.dtype)
        yield np.where(_at_a_tie(question, reference), question.actual, rounded)


def _at_a_tie(question: Question, reference: AnyArray) -> BoolArray:
    """Where either 16-bit neighbour of a reference is right, the output being one: kernels compute in float32."""
    if float_format(question.precision).precision >= float_format("float32").precision:
        return np.zeros(reference.shape, dtype=bool)
    with np.errstate(invalid="ignore", over="ignore"):
        reach = ulp(reference, question.precision) / 2 + question.roundoff * np.abs(reference)
        return np.asarray(np.abs(widen(question.actual) - reference) <= reach)


def _references(question: Question, steps: bool) -> Iterator[AnyArray]:
    yield question.expected
    if steps:
        sampled = question.runs("coarse", RUNS)
        yield from sampled
        # The rest of a vectorised loop may round what the vectors do not.
        yield nearest(question.actual, [question.expected, *sampled])
    growth = min(FAN_IN_CAP, max(1.0, question.fan_in / FAN_IN_START) ** 0.5)
    with np.errstate(all="ignore"):
        for run in question.runs("nudged", RUNS):
            yield question.expected + growth * (run - question.expected)


def _asked(rule: Rule, question: Question) -> bool:
    """What a project asks for itself, too; but healthy 16-bit numbers are often a thousandth off."""
    if rule.name in WARN:
        return True
    narrow = float_format(question.actual.dtype).precision < float_format("float32").precision
    return bool(rule.justification) and rule.name != BENCHMARK and not (rule.name == "thousandth" and narrow)


def _judged(question: Question, rule: Rule) -> Ruling:
    return justified(ruled(rule, question.actual.dtype.name, measured_for(question, rule)), rule)
