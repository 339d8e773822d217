"""The three-party verdict of each tool: a device's row and a benchmark's, both measured against the same reference.

Each takes the API ("Functional.linear"), the output's dtype by the device, and both rows, and says which rule judged.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, TypeAlias

import yaml

from pytest_probe.numerics.tool_metrics import Measures
from pytest_probe.standards.tools import ratios as ratio_rule
from pytest_probe.standards.tools.ratios import BALANCE, LIMITS, Compared, Ratios, compared
from pytest_probe.standards.tools.rules import (
    PASS,
    ULP_FLOAT32,
    ULP_NARROW,
    RuleVerdict,
    UlpLimits,
    binary,
    ulp,
    within,
)
from pytest_probe.standards.tools.single_rule import ruled
from pytest_probe.standards.tools.table import BENCHMARK, Table, later, packaged

THREE = ("float16", "bfloat16", "float32")
WIDE = ("float64", "complex64", "complex128")
UNSUPPORTED = RuleVerdict("skip", "this data type does not support benchmark compare")
EMPTY = RuleVerdict("skip", "the tool compares no empty tensors")


@dataclass(frozen=True, slots=True)
class Decision:
    """rule: which one judged, "" where none did; compared: the benchmark rule's ratios, or the
    balance of accumulative errors; over_ratio: the ULP rule's, of
    both shares of elements beyond the threshold."""

    rule: str
    ruling: RuleVerdict
    compared: tuple[Compared, ...] = ()
    over_ratio: float | None = None


Compare: TypeAlias = Callable[[str, str, Measures, Measures], Decision]


def by_ratios(api: str, dtype: str, device: Measures, benchmark: Measures) -> Decision:
    """The documented rule of ratios for all floats, whatever the lists of APIs say."""
    if not _is_float(dtype):
        return Decision("binary", binary(device))
    return _by_ratio(dtype, compared(device, benchmark, Ratios()))


def msprobe(api: str, dtype: str, device: Measures, benchmark: Measures, table: Table | None = None) -> Decision:
    """As documented for 1.0.4."""
    rule = (table or packaged()).rule(api, dtype)
    if not _is_float(dtype) or rule.name == BENCHMARK:
        return by_ratios(api, dtype, device, benchmark)
    if rule.name == "ulp":
        return _by_ulp(UlpLimits(rule.limits["over_ratio"], rule.limits["mean"]), device, benchmark, Ratios())
    return Decision(rule.name, ruled(rule, dtype, device))


def msprobe_1_0(api: str, dtype: str, device: Measures, benchmark: Measures) -> Decision:
    """As 1.0.4 does it: its ULP rule never takes a dtype for float32, and judges all by the limits of 16 bit."""
    rule = packaged().rule(api, dtype)
    if not device.count:
        return Decision("", EMPTY)
    if rule.name == "ulp":
        return _by_ulp(ULP_NARROW, device, benchmark, Ratios())
    return msprobe(api, dtype, device, benchmark)


def msprobe_8(api: str, dtype: str, device: Measures, benchmark: Measures) -> Decision:
    """1.2.2 to 8.3.3: the lists, with a least error that a benchmark's counts as, and no warnings."""
    rule = later().rule(api, dtype)
    if dtype in WIDE or not device.count:
        return Decision("", UNSUPPORTED if device.count else EMPTY)
    if not _is_float(dtype):
        return Decision("binary", binary(device))
    ratios = Ratios(floor=_floor(dtype))
    if rule.name == "ulp":
        return _by_ulp(ULP_FLOAT32 if dtype == "float32" else ULP_NARROW, device, benchmark, ratios)
    if rule.name == BENCHMARK:
        return _by_ratio(dtype, compared(device, benchmark, ratios, warns=False))
    decision = Decision(rule.name, ruled(rule, dtype, device))
    if rule.name != "accumulative":
        return decision
    balance = device.error_balance or 0.0
    ruling = PASS if within(balance, rule.limits["error_balance"]) else RuleVerdict("error")
    return replace(decision, compared=(Compared(BALANCE, balance, ruling),))


def msprobe_26(api: str, dtype: str, device: Measures, benchmark: Measures) -> Decision:
    """Ratios for all floats, whatever its lists of APIs say; no warnings."""
    if not device.count:
        return Decision("", EMPTY)
    if not _is_float(dtype):
        return Decision("binary", binary(device))
    if dtype.startswith("float8"):
        return Decision("ulp", ulp(device, ULP_NARROW))
    table = _levels()
    level = next((level for level, apis in table["apis"].items() if api.rpartition(".")[2] in apis), "L0")
    ratios = Ratios(floor=_floor(dtype))
    return _by_ratio(dtype, compared(device, benchmark, ratios, {**LIMITS, **table["levels"][level]}, warns=False))


def paddleapex(api: str, dtype: str, device: Measures, benchmark: Measures) -> Decision:
    """Its tables name APIs in a way that never matches, so that ratios judge all floats."""
    if not _is_float(dtype):
        return Decision("binary", binary(device))
    return _by_ratio(dtype, compared(device, benchmark, Ratios(nonfinite="unbounded")))


def _by_ulp(limits: UlpLimits, device: Measures, benchmark: Measures, ratios: Ratios) -> Decision:
    ratio = ratios.of(device.ulp_over_ratio, benchmark.ulp_over_ratio)
    return Decision("ulp", ulp(device, limits, benchmark, ratios.floor or 0.0), over_ratio=ratio)


def _by_ratio(dtype: str, found: tuple[Compared, ...]) -> Decision:
    if dtype in WIDE:
        return Decision("", UNSUPPORTED)
    return Decision(BENCHMARK, ratio_rule.benchmark(found), found)


def _is_float(dtype: str) -> bool:
    return dtype in (*THREE, *WIDE) or dtype.startswith("float8")


def _floor(dtype: str) -> float:
    floors = _levels()["floors"]
    return float(floors.get(dtype, floors["float32"]))


@functools.cache
def _levels() -> Mapping[str, Any]:
    text = resources.files("pytest_probe.standards").joinpath("tables/msprobe26.yaml").read_text(encoding="utf-8")
    table: Mapping[str, Any] = yaml.safe_load(text)
    return table


COMPARES: Mapping[str, Compare] = {
    "msprobe": msprobe,
    "msprobe-1.0": msprobe_1_0,
    "msprobe-8": msprobe_8,
    "msprobe-26": msprobe_26,
    "paddleapex": paddleapex,
    BENCHMARK: by_ratios,
}
