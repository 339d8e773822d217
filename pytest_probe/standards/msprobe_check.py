"""Where the noise rule passes: is the API's own table at error, though the correctly rounded result would pass it?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import TABLE_METRIC, OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray, BoolArray, dtype_name, float_format, widen
from pytest_probe.numerics.noise_ratio import FAN_IN_CAP, FAN_IN_START, nearest_run
from pytest_probe.numerics.ulp import ulp
from pytest_probe.standards.exact import correctly_rounded
from pytest_probe.standards.noise.stages import BETWEEN_STEPS
from pytest_probe.standards.noise.summed_terms import summed_terms
from pytest_probe.standards.tools.metrics import differing, is_float
from pytest_probe.standards.tools.rules import RuleVerdict
from pytest_probe.standards.tools.single_rule import justification, justified, measured_for, ruled
from pytest_probe.standards.tools.table import BENCHMARK, Rule, Table

# Perturbed runs. Chosen; no other number was measured.
CHECK_RUNS = 2
# Rules that may warn of what noise passes. `thousandth` fails healthy 16-bit numbers, `accumulative` small ones, and
# `benchmark` needs another run.
WARN = ("absolute_threshold", "ulp", "binary")


def with_table(comparison: Comparison, verdict: OutputVerdict, table: Table, standard: str) -> OutputVerdict:
    """The verdict, or a warning that names the table's metric."""
    if _is_right(comparison, verdict):
        return verdict
    rule = table.rule(comparison.call.api, dtype_name(comparison.actual.dtype))
    if comparison.allowance.emulated or not is_float(comparison) or not _asked(rule, comparison):
        return verdict
    found = _judged(comparison, rule)
    if found.verdict != "error":
        return verdict
    # A table that fails the right result as well says nothing of this one.
    if any(
        _judged(replace(comparison, actual=right), rule).verdict == "error" for right in _right(comparison, verdict)
    ):
        return verdict
    reason = f"noise passes it, msprobe's table for the API does not: {found.reason}"
    metrics = {**verdict.metrics, TABLE_METRIC: rule.name, **justification(rule)}
    return replace(
        verdict, verdict="warning", standard=standard, reason=reason, metrics=metrics, worst=differing(comparison)
    )


def _is_right(comparison: Comparison, verdict: OutputVerdict) -> bool:
    """Is the output the right result itself? A table that fails that says nothing of it. A reason tells that something
    else was measured than the output."""
    own = comparison.precision == comparison.actual.dtype
    return own and not verdict.reason and verdict.metrics["mismatch"] == 0.0


def _right(comparison: Comparison, verdict: OutputVerdict) -> Iterator[AnyArray]:
    """The reference rounded once, to what the output's dtype carries: 16 bit in a float32 gradient of autocast. Then
    references of inputs 4 roundoffs off, and more where sums are long: where the table fails those, no kernel of that
    precision can be sure of it. Where steps of 16 bit explain the output, or the CPU's kernel does, those as well.
    """
    steps = verdict.metrics.get("scale_from") == BETWEEN_STEPS or verdict.reason.startswith("as-cpu")
    for reference in _references(comparison, steps):
        rounded = correctly_rounded(widen(correctly_rounded(reference, comparison.precision)), comparison.actual.dtype)
        yield np.where(_at_a_tie(comparison, reference), comparison.actual, rounded)


def _at_a_tie(comparison: Comparison, reference: AnyArray) -> BoolArray:
    """Where either 16-bit neighbour of a reference is right, the output being one: kernels compute in float32."""
    if float_format(comparison.precision).precision >= float_format("float32").precision:
        return np.zeros(reference.shape, dtype=bool)
    with np.errstate(invalid="ignore", over="ignore"):
        reach = ulp(reference, comparison.precision) / 2 + comparison.roundoff * np.abs(reference)
        return np.asarray(np.abs(widen(comparison.actual) - reference) <= reach)


def _references(comparison: Comparison, steps: bool) -> Iterator[AnyArray]:
    yield comparison.expected
    if steps:
        sampled = comparison.evidence.narrow_steps(CHECK_RUNS)
        yield from sampled
        # The rest of a vectorised loop may round what the vectors do not.
        yield nearest_run(comparison.actual, [comparison.expected, *sampled])
    # As the limits of the noise rule grow: a table knows nothing of the length of a sum.
    growth = min(FAN_IN_CAP, max(1.0, summed_terms(comparison).count / FAN_IN_START) ** 0.5)
    with np.errstate(all="ignore"):
        for run in comparison.evidence.perturbed_more(CHECK_RUNS):
            yield comparison.expected + growth * (run - comparison.expected)


def _asked(rule: Rule, comparison: Comparison) -> bool:
    """What a project asks for itself, too; but healthy 16-bit numbers are often a thousandth off."""
    if rule.name in WARN:
        return True
    narrow = float_format(comparison.actual.dtype).precision < float_format("float32").precision
    return bool(rule.justification) and rule.name != BENCHMARK and not (rule.name == "thousandth" and narrow)


def _judged(comparison: Comparison, rule: Rule) -> RuleVerdict:
    return justified(ruled(rule, comparison.actual.dtype.name, measured_for(comparison, rule)), rule)
