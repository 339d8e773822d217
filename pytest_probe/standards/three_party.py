"""The three-party verdict of each tool: a device's row and a benchmark's, both measured against the same reference.

Each takes the API ("Functional.linear"), the output's dtype by the device, and both rows, and says which rule judged.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, TypeAlias

import yaml

from pytest_probe.numerics.measures import Measures
from pytest_probe.standards import benchmark as ratio_rule
from pytest_probe.standards.benchmark import LIMITS, Compared, Ratios, compared
from pytest_probe.standards.binary import binary
from pytest_probe.standards.by_rule import ruled
from pytest_probe.standards.ruling import Ruling
from pytest_probe.standards.table import BENCHMARK, Table, packaged
from pytest_probe.standards.ulp import NARROW, ulp

THREE = ("float16", "bfloat16", "float32")
WIDE = ("float64", "complex64", "complex128")
UNSUPPORTED = Ruling("skip", "this data type does not support benchmark compare")


@dataclass(frozen=True, slots=True)
class Decision:
    """rule: which one judged, "" where none did; compared: the benchmark rule's ratios."""

    rule: str
    ruling: Ruling
    compared: tuple[Compared, ...] = ()


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
    return Decision(rule.name, ruled(rule, dtype, device, benchmark))


def msprobe_1_0(api: str, dtype: str, device: Measures, benchmark: Measures) -> Decision:
    """As 1.0.4 does it: its ULP rule never takes a dtype for float32, and judges all by the limits of 16 bit."""
    rule = packaged().rule(api, dtype)
    if rule.name == "ulp":
        return Decision("ulp", ulp(device, NARROW, benchmark))
    return msprobe(api, dtype, device, benchmark)


def msprobe_26(api: str, dtype: str, device: Measures, benchmark: Measures) -> Decision:
    """Ratios for all floats, whatever its lists of APIs say; no warnings."""
    if not _is_float(dtype):
        return Decision("binary", binary(device))
    if dtype.startswith("float8"):
        return Decision("ulp", ulp(device, NARROW, benchmark))
    table = _levels()
    level = next((level for level, apis in table["apis"].items() if api.rpartition(".")[2] in apis), "L0")
    ratios = Ratios(floor=table["floors"].get(dtype, table["floors"]["float32"]))
    return _by_ratio(dtype, compared(device, benchmark, ratios, {**LIMITS, **table["levels"][level]}, warns=False))


def paddleapex(api: str, dtype: str, device: Measures, benchmark: Measures) -> Decision:
    """Its tables name APIs in a way that never matches, so that ratios judge all floats."""
    if not _is_float(dtype):
        return Decision("binary", binary(device))
    return _by_ratio(dtype, compared(device, benchmark, Ratios(nonfinite="unbounded")))


def _by_ratio(dtype: str, found: tuple[Compared, ...]) -> Decision:
    if dtype in WIDE:
        return Decision("", UNSUPPORTED)
    return Decision(BENCHMARK, ratio_rule.benchmark(found), found)


def _is_float(dtype: str) -> bool:
    return dtype in (*THREE, *WIDE) or dtype.startswith("float8")


@functools.cache
def _levels() -> Mapping[str, Any]:
    text = resources.files("pytest_probe.standards").joinpath("tables/msprobe26.yaml").read_text(encoding="utf-8")
    table: Mapping[str, Any] = yaml.safe_load(text)
    return table


COMPARES: Mapping[str, Compare] = {
    "msprobe": msprobe,
    "msprobe-1.0": msprobe_1_0,
    "msprobe-26": msprobe_26,
    "paddleapex": paddleapex,
    BENCHMARK: by_ratios,
}
