"""A release that is added as docs/architecture.md says, and what a wrong table says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import msgspec
import numpy as np
import pytest
import yaml
from msgspec.structs import replace

from pytest_probe.numerics.tool_metrics import Measures
from pytest_probe.standards.tools import TOOLS, Tool
from pytest_probe.standards.tools.release import packaged_release, read_release
from pytest_probe.standards.tools.tool import Compare
from tests.support.asking import comparison


def test_each_table_of_a_tool_is_in_the_list() -> None:
    tables = resources.files("pytest_probe.standards") / "tables" / "tools"
    assert sorted(file.name for file in tables.iterdir()) == sorted(f"{name}.yaml" for name in TOOLS)


def test_paddleapex_documented_has_the_lists_of_paddleapex_alone() -> None:
    rules = TOOLS["paddleapex-documented"].lists
    named = {"paddle.Tensor.__add__": "absolute_threshold", "paddle.nn.functional.relu": "binary"}
    named |= dict.fromkeys(("paddle.nn.functional.linear", "paddle.nn.functional.conv2d", "paddle.exp"), "benchmark")
    assert {api: rules.rule(api, "float32").name for api in named} == named


PAGE = Path(__file__).parents[3] / "docs" / "architecture.md"
OTHER_TOOL = """
help: the verdicts of a tool that we make up
rule: status
convention:
  "*": {rtol: 0.5, small_value: 0.001, eps: 1.0e-8}
status:
  integers: floats
  checks:
    - {metric: max_abs_error, side: below, limit: 0.01, then: pass}
    - {metric: mean_rel_error, side: below, limit: 0.5}
    - {metric: mean_rel_error, side: below, limit: 0.02, dtypes: [float32], otherwise: warning}
"""


def next_release() -> Tool:
    found = re.search(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return Tool("msprobe-27", read_release(yaml.safe_load(found[1])))


def test_a_release_has_what_changed_and_else_what_it_is_like() -> None:
    new, old = next_release().release, packaged_release("msprobe-26")
    assert new.help == "the verdicts of msprobe 27"
    assert [(check.metric, check.limit) for check in new.status.checks] == [("cosine", 0.999)]
    assert replace(new.status, checks=()) == replace(old.status, checks=())
    assert new.convention_of("bfloat16") == old.convention_of("bfloat16")


def test_a_release_judges_beside_a_benchmark_by_its_own_limits() -> None:
    tool = next_release()
    assert tool.release.three_party is not None
    compare = Compare(tool.release.three_party, tool.lists)
    device, benchmark = Measures(9, rmse=1.6, max_rel_error=9.0), Measures(9, rmse=1.0, max_rel_error=1.0)
    decision = compare("Functional.gelu", "float32", device, benchmark)
    assert (decision.rule, decision.ruling.verdict) == ("benchmark", "error")
    assert decision.ruling.reason == "benchmark: rmse is 1.6 times the benchmark's, limit 1.5"


@pytest.mark.parametrize(
    ("dtype", "factor", "verdict", "reason"),
    [
        ("float32", 1.0, "pass", ""),
        ("float32", 1.03, "warning", "mean_rel_error 0.03, must be below 0.02"),
        ("float32", 1.6, "error", "mean_rel_error 0.6, must be below 0.5"),
        ("float64", 1.03, "pass", ""),
    ],
)
def test_another_tools_table(dtype: str, factor: float, verdict: str, reason: str) -> None:
    values = np.full(8, 4.0)
    found = Tool("made-up", read_release(yaml.safe_load(OTHER_TOOL))).judge(
        comparison(values * factor, values, dtype=dtype, api="Functional.softmax")
    )
    assert (found.verdict, found.standard) == (verdict, "made-up")
    assert found.reason == reason


@pytest.mark.parametrize(
    "wrong",
    [{"rule": "rounds"}, {"checks": []}, {"status": {"checks": [{"metric": "rsme", "side": "below", "limit": 1}]}}],
)
def test_a_wrong_key_or_word_of_a_table_is_refused(wrong: Mapping[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        read_release({"like": "msprobe", **wrong})


@pytest.mark.parametrize(
    "wrong",
    [
        {"convention": {"float32": {"epsilon": 1.0}}},
        {"three_party": {"limits": {"rmsee": 1.5}}},
        {"three_party": {"levels": [{"limits": {"rmsee": 1.5}, "apis": []}]}},
    ],
)
def test_a_wrong_field_of_a_convention_or_a_limit_is_refused(wrong: Mapping[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"epsilon|rmsee"):
        read_release({"like": "msprobe-26", **wrong})


def test_a_release_that_judges_by_the_lists_has_its_own_status_and_lists() -> None:
    strict = {"checks": [{"metric": "cosine", "side": "above", "limit": 2.0}]}
    tool = Tool("next", read_release({"like": "msprobe", "status": strict, "lists": {"binary": ["relu"]}}))
    values = np.full(8, 4.0)
    given = [comparison(values * 1.0001, values, dtype="float32", api=f"Torch.{name}") for name in ("gelu", "relu")]
    verdicts = [tool.judge(each) for each in given]
    assert [found.metrics["rule"] for found in verdicts] == ["benchmark", "binary"]
    assert [found.verdict for found in verdicts] == ["error", "error"]
