"""What derives from the list of tools."""

from __future__ import annotations

from importlib import resources

from pytest_probe.standards.tools import TOOLS


def test_each_table_of_a_tool_is_in_the_list() -> None:
    tables = resources.files("pytest_probe.standards") / "tables" / "tools"
    assert sorted(file.name for file in tables.iterdir()) == sorted(f"{name}.yaml" for name in TOOLS)


def test_paddleapex_documented_has_the_lists_of_paddleapex_alone() -> None:
    rules = TOOLS["paddleapex-documented"].lists
    named = {"paddle.Tensor.__add__": "absolute_threshold", "paddle.nn.functional.relu": "binary"}
    named |= dict.fromkeys(("paddle.nn.functional.linear", "paddle.nn.functional.conv2d", "paddle.exp"), "benchmark")
    assert {api: rules.rule(api, "float32").name for api in named} == named
