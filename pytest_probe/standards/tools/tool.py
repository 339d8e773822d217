"""A tool's standard: what the table of a release makes of an output.

It takes the metrics that the tool would have taken, and judges by one rule of msprobe's lists or by a status, which
needs no benchmark. The three-party verdict comes of a device's row and a benchmark's, both measured against the same
reference: of the ratios of their errors, of a rule, or of both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.errors import Unsupported
from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import SEVERITY, Element, Metric, OutputVerdict
from pytest_probe.numerics import metrics
from pytest_probe.numerics.conventions import Convention
from pytest_probe.numerics.dtypes import WIDE_DTYPES, AnyArray, is_complex, is_inexact, round_to
from pytest_probe.numerics.tool_metrics import Measures, applying, measure
from pytest_probe.standards.classes.random import draws
from pytest_probe.standards.exact import correctly_rounded, elements, identical
from pytest_probe.standards.tools.release import (
    FORMULAS,
    PASS,
    Check,
    Release,
    RuleVerdict,
    Status,
    ThreeParty,
    binary,
    packaged_release,
    percent,
    ulp,
    within,
    zeros,
)
from pytest_probe.standards.tools.table import ANY, BENCHMARK, RULES, Entry, Rule, RuleLimits, Table, packaged

_NARROW = ("float16", "bfloat16")


def _refuse_random(comparison: Comparison, *, counts_zeros: bool = True) -> None:
    """Raises Unsupported where no reference has the one right answer. counts_zeros: the tool judges a dropout by its
    share of zeros."""
    kinds = comparison.classes & {"random", "uninitialised"}
    if kinds and not (is_dropout(comparison.call.api) and (counts_zeros or not draws(comparison))):
        raise Unsupported(f"{comparison.name}: no table judges what is {min(kinds)}", "no table judges it")


def is_dropout(api: str) -> bool:
    """Do the tools judge it by its share of zeros?"""
    return "dropout" in api


def against_reference(comparison: Comparison, release: Release) -> Measures:
    """Against the reference in the dtype that the tool computes it in."""
    if not is_inexact(comparison.actual.dtype):
        # Integers and bool are numbers to the tools that compare them as floats.
        if release.status.integers == "exact":
            return measure(comparison.actual, comparison.expected, Convention())
        actual, expected = (np.asarray(side, np.float64) for side in (comparison.actual, comparison.expected))
        return measure(actual, expected, release.convention_of("float64"))
    dtype = comparison.actual.dtype
    if release.status.reference in ("own", "computed"):
        reference = dtype.name
    elif release.status.reference == "float32":
        reference = "float64" if dtype in WIDE_DTYPES else "float32"
    else:
        narrow = (
            dtype.name in _NARROW or comparison.case.narrow or comparison.call.name in release.status.float32_reference
        )
        reference = "float32" if release.status.reference == "next" and narrow else "float64"
    with np.errstate(over="ignore"):
        expected = comparison.expected
        if release.status.reference == "computed" and comparison.actual.dtype == np.float32:
            computed = comparison.evidence.single()
            expected = expected if computed is None else computed
        if reference != "float64" and not is_complex(comparison.actual.dtype):
            expected = round_to(expected, reference)
        return measure(comparison.actual, expected, release.convention_of(comparison.actual.dtype, reference))


def verdict(
    comparison: Comparison,
    standard: str,
    found: RuleVerdict,
    measures: Measures,
    more: Mapping[str, Metric] | None = None,
) -> OutputVerdict:
    """With our own metrics first, then the rule's."""
    taken: dict[str, Metric] = dict(metrics.describe(comparison.actual, comparison.expected))
    taken |= applying(measures)
    return OutputVerdict(
        comparison.name,
        comparison.actual.shape,
        comparison.actual.dtype.name,
        found.verdict,
        standard,
        found.reason,
        {**taken, **(more or {})},
        () if found.verdict == "pass" else differing(comparison),
    )


def differing(comparison: Comparison) -> tuple[Element, ...]:
    """The elements that are farthest off, and not the correctly rounded reference."""
    return elements(
        comparison, ~identical(comparison.actual, correctly_rounded(comparison.expected, comparison.actual.dtype))
    )


class Tool:
    """name is that of --probe-standard. table: with the project's entries, which the documented rules ask first.

    Bugs of a tool that decide are in its table; docs/tool-standards.md lists them, and where this differs.
    """

    def __init__(self, name: str, release: Release, table: Table | None = None) -> None:
        self.name = name
        self.release = release
        listed = [
            Entry(api, ANY, rule, {}, "") for rule, apis in release.lists.items() for api in " ".join(apis).split()
        ]
        base = packaged()
        if release.own_lists:
            base = replace(base, apis=dict.fromkeys(RULES, frozenset()))
        self.lists = base.with_entries(listed)
        # Of equal entries the last one counts: the project's.
        self.table = self.lists.with_entries(() if table is None else table.entries)

    def judge(self, comparison: Comparison) -> OutputVerdict:
        """The verdict. Raises Unsupported where the tool has none for such an output."""
        if self.release.rule != "status":
            return self._by_rule(comparison)
        how = self.release.status
        _refuse_random(comparison, counts_zeros=how.zeros_of_dropout)
        measures = against_reference(comparison, self.release)
        if how.zeros_of_dropout and is_dropout(comparison.call.api):
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

    def beside(self, api: str, dtype: str, actual: AnyArray, expected: AnyArray) -> tuple[RuleVerdict, Measures]:
        """The verdict on an output, whose numbers are of this dtype, on another device's of the same shape."""
        if actual.dtype.kind in "biu":
            measures = measure(actual, expected, Convention())
            return self.status(actual.dtype.name, measures), measures
        rule = Rule(BENCHMARK, {}) if self.release.rule == "status" else self._rule(api, dtype)
        convention = self.release.convention_of(dtype, expected.dtype)
        measures = measure(actual, expected, limited(convention, rule.limits))
        if is_dropout(api):
            return zeros(actual, expected), measures
        return self.status(dtype, measures) if rule.name == BENCHMARK else ruled(rule, dtype, measures), measures

    def _by_rule(self, comparison: Comparison) -> OutputVerdict:
        _refuse_random(comparison)
        dtype = comparison.actual.dtype.name
        rule = self._rule(comparison.call.api, dtype)
        if not is_inexact(comparison.actual.dtype):
            rule = Rule("binary", {}, rule.justification)
        elif rule.name == BENCHMARK and dtype.startswith("float8"):
            # A relative error of 1 % is nothing there; msprobe 26 judges float8 by ULP.
            rule = Rule("ulp", packaged().limits_of("ulp", "bfloat16") or {}, rule.justification)
        measures = measured_for(comparison, rule, self.release)
        ruling = ruled(rule, dtype, measures, self.release)
        if is_dropout(comparison.call.api):
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
    if not is_inexact(comparison.actual.dtype):
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
_ZERO = 2.0**-52
# Within which relative error a share counts the elements.
_WITHIN = {"hundredth_ratio": 0.01, "thousandth_ratio": 0.001, "ten_thousandth_ratio": 0.0001}
_WITHIN |= {"five_thousandth_ratio": 0.005}
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
        # None for one element, and for zeros twice; a side of zeros alone is one.
        distance = measures.cosine_distance
        if distance is not None:
            fine = check.holds(1 - distance) or (nan_passes and math.isnan(distance))
            return "" if fine else f"cosine {1 - distance:.6g}, must be {check.side} {check.limit}"
        actual, expected = measures.actual_magnitude, measures.expected_magnitude
        if measures.count == 1 or actual is None or expected is None or (actual <= _ZERO) == (expected <= _ZERO):
            return None
        return f"all of the {'output' if actual <= _ZERO else 'reference'} is zero, and the other side is not"
    value: float | None = getattr(measures, check.metric)
    if value is None or check.holds(value):
        return None if value is None else ""
    if check.metric in _WITHIN:
        near = f"{percent(value)} of the elements are within {_WITHIN[check.metric]:g}"
        return f"{near}, must be {'more' if check.side == 'above' else 'less'} than {percent(check.limit)}"
    return f"{NAMES.get(check.metric, check.metric)} {value:.3g}, must be {check.side} {check.limit}"


_BALANCE = "error_balance"
_UNBOUNDED = 10000.0
# The device's metric and the benchmark's.
Sides: TypeAlias = tuple[float | None, float | None]


class Ratios(Struct, frozen=True):
    """How a tool divides two errors.

    floor: what the benchmark's error counts as at least. Without one, 0 / 0 is 1 and anything else over 0 is 10,000.
    nonfinite: "alike", equal NaN and inf on both sides pass with a ratio of NaN, unequal ones are an error;
    "unbounded", any of them is a ratio of 10,000. blank: what a metric that does not apply counts as.
    """

    floor: float | None = None
    nonfinite: Literal["alike", "unbounded"] = "alike"
    blank: float = 0.0

    def of(self, device: float | None, benchmark: float | None) -> float:
        """inf where NaN and inf are unlike."""
        own, other = (self.blank if value is None else value for value in (device, benchmark))
        if not (math.isfinite(own) and math.isfinite(other)):
            if self.nonfinite == "unbounded":
                return _UNBOUNDED
            return math.nan if own == other or (math.isnan(own) and math.isnan(other)) else math.inf
        if self.floor is not None:
            return abs(own) / max(abs(other), self.floor)
        if other == 0:
            return 1.0 if own == 0 else _UNBOUNDED
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
    sides = {name: (getattr(device, name), getattr(benchmark, name)) for name in limits}
    values = {name: ratios.of(*both) for name, both in sides.items()}
    return tuple(
        ComparedMetric(name, values[name], _ruling(name, values[name], sides[name], limit, warns))
        for name, limit in limits.items()
    )


def _ruling(name: str, value: float, sides: Sides, limit: float, warns: bool) -> RuleVerdict:
    words = f"benchmark: {name} is {value:.3g} times the benchmark's"
    if value == _UNBOUNDED and (sides[1] == 0 or not all(side is not None and math.isfinite(side) for side in sides)):
        own, other = ("unknown" if side is None else f"{side:.3g}" for side in sides)
        words = f"benchmark: {name} is {own}, the benchmark's {other}, which the tool counts as {value:g} times"
    if value == math.inf:
        return RuleVerdict("error", f"benchmark: NaN or inf in {name}, unlike the benchmark's")
    if value > limit:
        return RuleVerdict("error", f"{words}, limit {limit:g}")
    if warns and value > 1:
        return RuleVerdict("warning", f"{words}")
    return PASS


def worst_ratio(found: tuple[ComparedMetric, ...]) -> RuleVerdict:
    """The worst of the ratios that count."""
    counted = [item.ruling for item in found if item.metric != _BALANCE]
    return max(counted, key=lambda ruling: SEVERITY[ruling.verdict], default=PASS)


_THREE = ("float16", "bfloat16", "float32")
_WIDE_NAMES = ("float64", "complex64", "complex128")
UNSUPPORTED = RuleVerdict("skip", "this data type does not support benchmark compare")
_EMPTY_SKIPPED = RuleVerdict("skip", "the tool compares no empty tensors")


class Decision(Struct, frozen=True):
    """rule: which one judged, "" where none did; compared: the benchmark rule's ratios, or the balance of accumulative
    errors; over_ratio: the ULP rule's, of both shares of elements beyond the threshold."""

    rule: str
    ruling: RuleVerdict
    compared: tuple[ComparedMetric, ...] = ()
    over_ratio: float | None = None


class Compare(Struct, frozen=True):
    """lists: the lists that say which rule judges an API, where how asks them."""

    how: ThreeParty
    lists: Table

    def __call__(self, api: str, dtype: str, device: Measures, benchmark: Measures) -> Decision:
        """The verdict on one output of an API ("Functional.linear"), and the rule that judged. dtype: the device's."""
        how = self.how
        if how.empty == "skip" and not device.count:
            return Decision("", _EMPTY_SKIPPED)
        if how.wide == "skip" and dtype in _WIDE_NAMES:
            return Decision("", UNSUPPORTED)
        if dtype not in (*_THREE, *_WIDE_NAMES) and not dtype.startswith("float8"):
            return Decision("binary", binary(device))
        if how.float8_ulp is not None and dtype.startswith("float8"):
            return Decision("ulp", ulp(device, how.float8_ulp))
        rule = self.lists.rule(api, dtype) if how.listed else Rule(BENCHMARK, {})
        # Of an empty output no metric applies.
        blank = math.nan if how.nonfinite == "unbounded" and device.count else 0.0
        ratios = Ratios(how.floor(dtype), how.nonfinite, blank)
        if rule.name == BENCHMARK and dtype in _WIDE_NAMES:
            return Decision("", UNSUPPORTED)
        if rule.name == BENCHMARK:
            found = compared(device, benchmark, ratios, how.limits_of(api), warns=how.warns)
            return Decision(BENCHMARK, worst_ratio(found), found)
        if rule.name == "ulp":
            ratio = ratios.of(device.ulp_over_ratio, benchmark.ulp_over_ratio)
            ruling = ulp(device, how.ulp or rule.limits, benchmark, ratios.floor or 0.0)
            return Decision("ulp", ruling, over_ratio=ratio)
        beside: tuple[ComparedMetric, ...] = ()
        if rule.name == "accumulative":
            balance = device.error_balance or 0.0
            fine = within(balance, rule.limits[_BALANCE])
            beside = (ComparedMetric(_BALANCE, balance, PASS if fine else RuleVerdict("error")),)
        return Decision(rule.name, ruled(rule, dtype, device), beside)
