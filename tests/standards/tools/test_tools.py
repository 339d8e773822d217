"""What derives from the list of tools."""

from __future__ import annotations

from pytest_probe.standards import STANDARDS
from pytest_probe.standards.tools import COMPARES, TOOLS


def test_each_tool_has_a_name_and_a_module_of_its_own() -> None:
    assert len({tool.name for tool in TOOLS}) == len({tool.__module__ for tool in TOOLS}) == len(TOOLS)


def test_each_tool_is_a_standard() -> None:
    assert all(type(STANDARDS[tool.name]) is tool for tool in TOOLS)
    assert [name for name in STANDARDS if name not in {tool.name for tool in TOOLS}] == [
        "auto", "noise", "exact", "finite", "thousandth", "binary", "absolute_threshold", "ulp", "accumulative"
    ]  # fmt: skip


def test_some_compare_with_a_benchmark() -> None:
    assert list(COMPARES) == ["msprobe", "msprobe-1.0", "msprobe-8", "msprobe-26", "paddleapex", "benchmark"]
