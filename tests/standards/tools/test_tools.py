"""What derives from the list of tools."""

from __future__ import annotations

from importlib import resources

from pytest_probe.standards import STANDARDS
from pytest_probe.standards.tools import COMPARES, TOOLS


def test_each_table_of_a_tool_is_in_the_list() -> None:
    tables = resources.files("pytest_probe.standards") / "tables" / "tools"
    assert sorted(file.name for file in tables.iterdir()) == sorted(f"{name}.yaml" for name in TOOLS)


def test_each_tool_is_a_standard() -> None:
    assert all(STANDARDS[name].name == name for name in TOOLS)
    assert [name for name in STANDARDS if name not in TOOLS] == [
        "auto", "noise", "exact", "finite", "thousandth", "binary", "absolute_threshold", "ulp", "accumulative"
    ]  # fmt: skip


def test_some_compare_with_a_benchmark() -> None:
    assert list(COMPARES) == [
        "msprobe", "msprobe-1.0", "msprobe-8", "msprobe-26", "paddleapex", "paddleapex-documented", "benchmark"
    ]  # fmt: skip


def test_paddleapex_documented_has_the_lists_of_paddleapex_alone() -> None:
    rules = TOOLS["paddleapex-documented"].lists
    named = {"paddle.Tensor.__add__": "absolute_threshold", "paddle.nn.functional.relu": "binary"}
    named |= dict.fromkeys(("paddle.nn.functional.linear", "paddle.nn.functional.conv2d", "paddle.exp"), "benchmark")
    assert {api: rules.rule(api, "float32").name for api in named} == named
