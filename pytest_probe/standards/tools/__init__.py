"""The standards of tools: each a table, tables/tools/NAME.yaml; this list is the one place that names them all."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import Metric
from pytest_probe.numerics.conventions import Convention
from pytest_probe.numerics.dtypes import is_inexact
from pytest_probe.numerics.tool_metrics import applying, measure
from pytest_probe.standards.tools.release import packaged_release
from pytest_probe.standards.tools.table import RULES, Table
from pytest_probe.standards.tools.tool import Compare, Tool, against_reference

NAMES = (
    *("msprobe", "msprobe-1.0", "msprobe-8", "msprobe-26", "paddleapex", "paddleapex-documented"),
    *("mindspore", "mindspore-documented", "ptdbg", "benchmark"),
)
# What decides against a benchmark where the standard is none of them.
DEFAULT = "msprobe"


def tool_standards(table: Table | None = None) -> Mapping[str, Tool]:
    """All of them by name; standards with a table ask this one."""
    return {name: Tool(name, packaged_release(name), table) for name in NAMES}


def rule_standards(table: Table | None = None) -> Mapping[str, Tool]:
    """Each rule of the lists as a standard for all floats, whatever the lists say."""
    ratios = packaged_release("benchmark")
    return {name: Tool(name, replace(ratios, rule=name), table) for name in RULES}


TOOLS = tool_standards()
# The standards that judge a device against a benchmark.
COMPARES: Mapping[str, Compare] = {
    name: Compare(tool.release.three_party, tool.lists)
    for name, tool in TOOLS.items()
    if tool.release.three_party is not None
}
# The release whose thresholds count where the standard has none for the columns of msprobe's files.
_USUAL = "msprobe-1.0"


def measures(comparison: Comparison, standard: str) -> Mapping[str, Metric]:
    """What the columns of msprobe's files hold of an output: all metrics that apply, by the standard's convention,
    or that of msprobe 1.0 where it has none; for MindSpore's files the deciding ones."""
    rule, tool = Convention(), TOOLS.get(standard)
    if tool is not None and tool.release.columns.layout == "mindspore":
        return applying(against_reference(comparison, tool.release))
    if is_inexact(comparison.actual.dtype):
        owner = tool if tool and tool.release.columns.own_thresholds else TOOLS[_USUAL]
        rule = owner.release.convention_of(comparison.actual.dtype)
    return applying(measure(comparison.actual, comparison.expected, rule))


def rule_of(standard: str, api: str, dtype: str) -> str:
    """The rule whose columns are filled for an API's output of a floating dtype."""
    return TOOLS.get(standard, TOOLS[DEFAULT]).rule_of(api, dtype)


__all__ = ["COMPARES", "DEFAULT", "TOOLS", "Tool", "measures", "rule_of", "rule_standards", "tool_standards"]
