"""What the table of a tool's release says, tables/tools/NAME.yaml: its limits, and in which order its rules decide; and
the rules that the tools of the field judge by, each from an output's metrics to a verdict.

Thresholds on single elements (small_value, rtol, ...) are those of the convention under which the metrics were taken.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec
import numpy.typing as npt
from msgspec import Struct

from pytest_probe.model.verdict import Outcome
from pytest_probe.numerics.conventions import Convention
from pytest_probe.numerics.dtypes import AnyArray, float_format, numpy_dtype
from pytest_probe.numerics.tool_metrics import Measures
from pytest_probe.standards.tables import packaged_table
from pytest_probe.standards.tools.table import ANY, BENCHMARK, RULES, RuleLimits, of_dtype

# The cosine is 1 - Measures.cosine_distance.
_Metric: TypeAlias = Literal[("cosine", *Measures.__struct_fields__)]  # type: ignore[valid-type]
_SMALL_AND_CLOSE = ("small_value", "small_atol", "absolute_atol", "rtol")
_OF_THE_REFERENCE = "of the reference"


class Check(Struct, frozen=True, forbid_unknown_fields=True):
    """A metric that has to be above or below a limit, in these dtypes (none: in all). then: what ends the status where
    it is so; otherwise: where it is not."""

    metric: _Metric
    side: Literal["above", "below"]
    limit: float
    dtypes: frozenset[str] = frozenset()
    then: Literal["pass"] | None = None
    otherwise: Literal["warning", "error"] = "error"

    def holds(self, value: float) -> bool:
        """NaN is on neither side."""
        return value > self.limit if self.side == "above" else value < self.limit


class Status(Struct, frozen=True, forbid_unknown_fields=True):
    """How an output is judged against the reference alone.

    reference: the dtype that the tool computes it in; "next" is float32 for 16-bit tensors and for the APIs of
    float32_reference, and float64 for others; "own" is float64 rounded to the output's, "computed" the same but by the
    CPU's kernels where that is float32. integers: compared exactly, or as floats. comparable: dtypes that the
    tool compares at all, None for all. zeros_of_dropout: a dropout is judged by its share of zeros. missing: a check
    of a metric that does not apply leaves it to the next one, or is an error. formula: the rule that decides with these
    limits; without one the checks decide, in their order.
    """

    reference: Literal["float64", "next", "float32", "own", "computed"] = "float64"
    float32_reference: frozenset[str] = frozenset()
    integers: Literal["exact", "floats"] = "exact"
    comparable: frozenset[str] | None = None
    zeros_of_dropout: bool = True
    empty: Literal["judge", "skip", "error"] = "judge"
    nan_cosine: Literal["error", "pass"] = "error"
    missing: Literal["next", "error"] = "next"
    checks: tuple[Check, ...] = ()
    formula: Literal["accuracy_reached"] | None = None
    limits: dict[str, float] = {}


class _Level(Struct, frozen=True, forbid_unknown_fields=True):
    """Other limits of ratios, for APIs by their own names."""

    limits: dict[str, float]
    apis: frozenset[str]


class ThreeParty(Struct, frozen=True, forbid_unknown_fields=True):
    """How a device's errors are judged by a benchmark's.

    listed: the list that has the API says which rule judges; otherwise ratios judge all floats. limits: how many times
    the benchmark's error a device's may be, by metric. floors: the least that a benchmark's error counts as, by dtype.
    nonfinite: that of Ratios, where "unbounded" is that of blank cells, too. ulp: limits in place of those of the
    lists; float8_ulp: those of float8, which has no ratios then.
    """

    limits: dict[str, float]
    listed: bool
    empty: Literal["judge", "skip"] = "judge"
    wide: Literal["judge", "skip"] = "judge"
    warns: bool = True
    nonfinite: Literal["alike", "unbounded"] = "alike"
    floors: dict[str, float] = {}
    levels: tuple[_Level, ...] = ()
    ulp: dict[str, float] | None = None
    float8_ulp: dict[str, float] | None = None

    def limits_of(self, api: str) -> RuleLimits:
        name = api.rpartition(".")[2]
        return self.limits | next((level.limits for level in self.levels if name in level.apis), {})

    def floor(self, dtype: str) -> float | None:
        return of_dtype(self.floors, dtype)


class _Columns(Struct, frozen=True, forbid_unknown_fields=True):
    """How msprobe's files are filled: by the tool's own thresholds, or msprobe 1.0's; with the columns of the rule that
    the lists name for the API, or those of ratios. layout: whose columns they have; MindSpore's checker writes the
    metrics that decided. apis: the APIs with rows, as globs between spaces."""

    own_thresholds: bool = False
    listed: bool = True
    layout: Literal["msprobe", "mindspore"] = "msprobe"
    apis: tuple[str, ...] = ("*",)


class Release(Struct, frozen=True, forbid_unknown_fields=True):
    """A release of a tool.

    help: one line for the list of standards. rule: what judges without a benchmark: the rule of the API's list
    ("listed"), one rule for all floats, or the status. convention: fields of Convention by dtype ("*": all others).
    lists: APIs by rule; own_lists: those alone, not in addition to msprobe 1.0's.
    """

    help: str
    rule: Literal[("listed", "status", BENCHMARK, *RULES)]  # type: ignore[valid-type]
    convention: dict[str, dict[str, Any]]
    status: Status
    lists: dict[str, tuple[str, ...]] = {}
    own_lists: bool = False
    three_party: ThreeParty | None = None
    columns: _Columns = _Columns()

    def __post_init__(self) -> None:
        for dtype in self.convention:
            self.convention_of("float32" if dtype == ANY else dtype)
        if self.three_party is not None:
            levels = (level.limits for level in self.three_party.levels)
            for limits in (self.three_party.limits, *levels):
                msgspec.convert([*limits], list[_Metric])

    def convention_of(self, dtype: npt.DTypeLike, reference: npt.DTypeLike = "float64") -> Convention:
        """For outputs of a floating or complex dtype, compared with a reference of another.

        Not imitated: where the tools' float32 arithmetic on 16-bit outputs overflows (squares of errors above 1e19, ULP
        of bfloat16 below 2^-120), they print inf or NaN.
        """
        name, form = float_format(dtype).name, float_format(reference)
        fields = self.convention[ANY] | self.convention.get(name, {})
        if form.name != "float64":
            # The tools compare in the reference's dtype, and NumPy rounds the threshold to it.
            narrow = numpy_dtype("float16" if (name, form.name) == ("float16", "float16") else "float32").type
            fields |= {key: float(narrow(fields[key])) for key in _SMALL_AND_CLOSE if key in fields}
        if fields.get("eps") == _OF_THE_REFERENCE:
            fields["eps"] = 2 * form.roundoff
        return msgspec.convert(fields, Convention)


def read_release(content: Mapping[str, Any]) -> Release:
    """`like` names the packaged release that the table differs from. Raises msgspec.ValidationError."""
    return msgspec.convert(_whole(content), Release)


@functools.cache
def packaged_release(name: str) -> Release:
    return msgspec.convert(_packaged(name), Release)


@functools.cache
def _packaged(name: str) -> dict[str, Any]:
    return _whole(packaged_table(f"tools/{name}", dict[str, Any]))


def _whole(content: Mapping[str, Any]) -> dict[str, Any]:
    own = {key: value for key, value in content.items() if key != "like"}
    return _with(_packaged(content["like"]), own) if "like" in content else own


def _with(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings are merged, whatever else is replaced."""
    merged = {
        key: _with(base[key], value) if isinstance(value, dict) and isinstance(base.get(key), dict) else value
        for key, value in changes.items()
    }
    return {**base, **merged}


class RuleVerdict(Struct, frozen=True):
    """What a rule finds in the metrics of one output. reason names the metric that decided, with its value and limit; a
    pass needs none."""

    verdict: Outcome
    reason: str = ""


PASS = RuleVerdict("pass")


def percent(share: float) -> str:
    """A share of elements, as a message has it."""
    return f"{100 * share:.5g} %"


def within(value: float | None, limit: float) -> bool:
    """value <= limit; a metric that does not apply is within, NaN is not."""
    return value is None or value <= limit


_ABSOLUTE_RATIOS = {
    "inf_nan_error_ratio": "of the NaN and inf are not the reference's",
    "rel_error_ratio": "of the values that are not small are beyond rtol",
    "abs_error_ratio": "of the small values are beyond the absolute threshold",
}


def absolute_threshold(measures: Measures, limits: RuleLimits | None = None) -> RuleVerdict:
    """A relative limit for what is not small, an absolute one for what is, and none may be beyond: inf_nan_error_ratio,
    rel_error_ratio and abs_error_ratio are 0. The limits are those of the convention."""
    for name, words in _ABSOLUTE_RATIOS.items():
        share: float | None = getattr(measures, name)
        if share is not None and not within(share, 0):
            return RuleVerdict("error", f"absolute threshold: {percent(share)} {words}; none may be")
    return PASS


def accumulative(measures: Measures, limits: RuleLimits) -> RuleVerdict:
    """Absolute thresholds with one bound for values up to 1 and, relative, for larger ones; and errors to both sides
    in balance: error_balance <= its limit."""
    found = absolute_threshold(measures)
    if found.verdict == "error":
        return found
    balance, limit = measures.error_balance, limits["error_balance"]
    if within(balance, limit):
        return PASS
    return RuleVerdict("error", f"error balance {balance:.3g}, limit {limit:.3g}")


def binary(measures: Measures, limits: RuleLimits | None = None) -> RuleVerdict:
    """Binary consistency: every element equals the reference, NaN never does: binary_mismatch_ratio is 0."""
    share = measures.binary_mismatch_ratio
    if share is None or within(share, 0):
        return PASS
    return RuleVerdict("error", f"binary: {percent(share)} of the elements differ; none may")


def thousandth(measures: Measures, limits: RuleLimits) -> RuleVerdict:
    """A least share of all elements has a relative error below 0.001: thousandth_ratio >= its limit."""
    share, least = measures.thousandth_ratio, limits["ratio"]
    if share is None or share >= least:
        return PASS
    return RuleVerdict(
        "error", f"thousandth: {percent(share)} of the elements are within 0.001, at least {percent(least)} must be"
    )


def ulp(measures: Measures, limits: RuleLimits, benchmark: Measures | None = None, floor: float = 0.0) -> RuleVerdict:
    """A mean (0: none passes), or a share of elements beyond a threshold; else no worse a share than the benchmark's:
    ulp_mean < its limit, or ulp_over_ratio < its limit, or ulp_over_ratio < max(the benchmark's, floor).

    benchmark: another device's errors against the same reference, whose share counts as floor at least. A mean that is
    NaN or inf must be the benchmark's too.
    """
    mean, share = _number(measures.ulp_mean), _number(measures.ulp_over_ratio)
    if benchmark is not None:
        other = _number(benchmark.ulp_mean)
        finite = math.isfinite(mean) and math.isfinite(other)
        if not (finite or mean == other or (math.isnan(mean) and math.isnan(other))):
            return RuleVerdict("error", f"ULP: mean {mean:.3g}, the benchmark's {_number(benchmark.ulp_mean):.3g}")
    if mean < limits["mean"] or share < limits["over_ratio"]:
        return PASS
    if benchmark is not None and share < max(_number(benchmark.ulp_over_ratio), floor):
        return PASS
    allowed = percent(limits["over_ratio"]) + (f", or a mean of {limits['mean']:g}" if limits["mean"] else "")
    reason = f"ULP: mean {mean:.3g}, {percent(share)} of the elements beyond the threshold; must be below {allowed}"
    return RuleVerdict("error", reason)


def _number(value: float | None) -> float:
    return 0.0 if value is None else value


def accuracy_reached(measures: Measures, limits: RuleLimits) -> RuleVerdict:
    """ptdbg's: an error where cosine and largest absolute error are both beyond their limits, or one of them beyond its
    worst one, cosine < worst_cosine or max_abs_error > worst_max_abs_error. "Nan", where the cosine cannot be had (one
    element, one side zero), is a warning: the tool has not decided."""
    if measures.nonfinite_mismatch:
        return RuleVerdict("error", "NaN or inf stand at other places than in the reference")
    cosine, largest = _cosine(measures), measures.max_abs_error
    if cosine is None or largest is None or math.isnan(cosine) or math.isnan(largest):
        return RuleVerdict("warning", "the tool prints Nan: no cosine")
    both = cosine < limits["cosine"] and largest > limits["max_abs_error"]
    if both or cosine < limits["worst_cosine"] or largest > limits["worst_max_abs_error"]:
        return RuleVerdict("error", f"cosine {cosine:.6g}, largest absolute error {largest:.3g}")
    return PASS


def _cosine(measures: Measures) -> float | None:
    """1 where both sides are zero; None for a single element, and where the other side is zero."""
    if measures.count == 1 or measures.cosine_distance is not None:
        return None if measures.cosine_distance is None else 1 - measures.cosine_distance
    both = (measures.actual_magnitude, measures.expected_magnitude)
    return 1.0 if both == (0, 0) else None


# The tools judge no share of zeros of fewer elements than these, and allow a difference below this one.
_ZEROS_LEAST_ELEMENTS, _ZEROS_MOST = 100, 0.1


def zeros(actual: AnyArray, expected: AnyArray) -> RuleVerdict:
    """Dropout as the tools judge it: by the number of zeros, |Z(actual) - Z(expected)| / N < 0.1, and not at all where
    N, the number of elements, is below 100."""
    if actual.size < _ZEROS_LEAST_ELEMENTS:
        return PASS
    gap = abs(int((actual == 0).sum()) - int((expected == 0).sum())) / actual.size
    if gap < _ZEROS_MOST:
        return PASS
    limit = percent(_ZEROS_MOST)
    return RuleVerdict("error", f"more or fewer zeros, by {percent(gap)} of the elements; must be below {limit}")


FORMULAS: Mapping[str, Callable[[Measures, RuleLimits], RuleVerdict]] = {
    "thousandth": thousandth,
    "binary": binary,
    "absolute_threshold": absolute_threshold,
    "ulp": ulp,
    "accumulative": accumulative,
    "accuracy_reached": accuracy_reached,
}
