"""The standards of tools: each a table, tables/tools/NAME.yaml; this list is the one place that names them all."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from pytest_probe.standards.tools.release import packaged_release
from pytest_probe.standards.tools.table import RULES, Table
from pytest_probe.standards.tools.three_party import Compare
from pytest_probe.standards.tools.tool import Tool

NAMES = ("msprobe", "msprobe-1.0", "msprobe-8", "msprobe-26", "paddleapex", "mindspore", "ptdbg", "benchmark")
# What decides beside a benchmark where the standard is none of them.
DEFAULT = "msprobe"


def tool_standards(table: Table | None = None) -> Mapping[str, Tool]:
    """All of them by name; those that ask a table ask this one."""
    return {name: Tool(name, packaged_release(name), table) for name in NAMES}


def rule_standards(table: Table | None = None) -> Mapping[str, Tool]:
    """Each rule of the lists as a standard for all floats, whatever the lists say."""
    ratios = packaged_release("benchmark")
    return {name: Tool(name, replace(ratios, rule=name), table) for name in RULES}


TOOLS = tool_standards()
# Those that judge a device beside a benchmark.
COMPARES: Mapping[str, Compare] = {
    name: Compare(tool.release.three_party, tool.lists)
    for name, tool in TOOLS.items()
    if tool.release.three_party is not None
}

__all__ = ["COMPARES", "DEFAULT", "TOOLS", "Tool", "rule_standards", "tool_standards"]
