"""What the table of a tool's release says, tables/tools/NAME.yaml: its limits, and in which order its rules decide."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec
import numpy.typing as npt
from msgspec import Struct

from pytest_probe.numerics.conventions import Convention
from pytest_probe.numerics.dtypes import float_format, numpy_dtype
from pytest_probe.numerics.tool_metrics import Measures
from pytest_probe.standards.tables import packaged_table
from pytest_probe.standards.tools.table import ANY, BENCHMARK, RULES, RuleLimits, of_dtype

# The cosine is 1 - Measures.cosine_distance.
Metric: TypeAlias = Literal[("cosine", *Measures.__struct_fields__)]  # type: ignore[valid-type]
SMALL_AND_CLOSE = ("small_value", "small_atol", "absolute_atol", "rtol")
OF_THE_REFERENCE = "of the reference"


class Check(Struct, frozen=True, forbid_unknown_fields=True):
    """A metric that has to be above or below a limit, in these dtypes (none: in all). then: what ends the status where
    it is so; otherwise: where it is not."""

    metric: Metric
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
    float32_reference, and float64 for others. integers: compared exactly, or as floats. comparable: dtypes that the
    tool compares at all, None for all. zeros_of_dropout: a dropout is judged by its share of zeros. missing: a check
    of a metric that does not apply leaves it to the next one, or is an error. formula: the rule that decides with these
    limits; without one the checks decide, in their order.
    """

    reference: Literal["float64", "next", "float32", "own"] = "float64"
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


class Level(Struct, frozen=True, forbid_unknown_fields=True):
    """Other limits of ratios, for APIs by their own names."""

    limits: dict[str, float]
    apis: frozenset[str]


class ThreeParty(Struct, frozen=True, forbid_unknown_fields=True):
    """How a device's errors are judged by a benchmark's.

    listed: the list that has the API says which rule judges; otherwise ratios judge all floats. limits: how many times
    the benchmark's error a device's may be, by metric. floors: the least that a benchmark's error counts as, by dtype.
    nonfinite: that of Ratios. ulp: limits in place of those of the lists; float8_ulp: those of float8, which has no
    ratios then.
    """

    limits: dict[str, float]
    listed: bool
    empty: Literal["judge", "skip"] = "judge"
    wide: Literal["judge", "skip"] = "judge"
    warns: bool = True
    nonfinite: Literal["alike", "unbounded"] = "alike"
    floors: dict[str, float] = {}
    levels: tuple[Level, ...] = ()
    ulp: dict[str, float] | None = None
    float8_ulp: dict[str, float] | None = None

    def limits_of(self, api: str) -> RuleLimits:
        name = api.rpartition(".")[2]
        return self.limits | next((level.limits for level in self.levels if name in level.apis), {})

    def floor(self, dtype: str) -> float | None:
        return of_dtype(self.floors, dtype)


class Columns(Struct, frozen=True, forbid_unknown_fields=True):
    """How msprobe's files are filled: by the tool's own thresholds, or msprobe 1.0's; with the columns of the rule that
    the lists name for the API, or those of ratios."""

    own_thresholds: bool = False
    listed: bool = True


class Release(Struct, frozen=True, forbid_unknown_fields=True):
    """A release of a tool.

    help: one line for the list of standards. rule: what judges without a benchmark: the rule of the API's list
    ("listed"), one rule for all floats, or the status. convention: fields of Convention by dtype ("*": all others).
    lists: APIs that it has in addition to msprobe 1.0's, by rule.
    """

    help: str
    rule: Literal[("listed", "status", BENCHMARK, *RULES)]  # type: ignore[valid-type]
    convention: dict[str, dict[str, Any]]
    status: Status
    lists: dict[str, tuple[str, ...]] = {}
    three_party: ThreeParty | None = None
    columns: Columns = Columns()

    def __post_init__(self) -> None:
        for dtype in self.convention:
            self.convention_of("float32" if dtype == ANY else dtype)
        if self.three_party is not None:
            levels = (level.limits for level in self.three_party.levels)
            for limits in (self.three_party.limits, *levels):
                msgspec.convert([*limits], list[Metric])

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
            fields |= {key: float(narrow(fields[key])) for key in SMALL_AND_CLOSE if key in fields}
        if fields.get("eps") == OF_THE_REFERENCE:
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
