"""What the columns of msprobe's files hold of an output, by the standard that judges."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import Metric
from pytest_probe.numerics.conventions import Convention
from pytest_probe.numerics.tool_metrics import applying, measure
from pytest_probe.standards.tools import DEFAULT, TOOLS
from pytest_probe.standards.tools.metrics import is_float
from pytest_probe.standards.tools.msprobe_1_0 import Msprobe10
from pytest_probe.standards.tools.tool import ThresholdTool

_TOOLS = {tool.name: tool() for tool in TOOLS}


def measures(comparison: Comparison, standard: str) -> Mapping[str, Metric]:
    """All metrics that apply to an output, by the standard's convention, or that of msprobe 1.0 where it has none."""
    rule = Convention()
    if is_float(comparison):
        tool = _TOOLS.get(standard)
        owner = tool if isinstance(tool, ThresholdTool) else Msprobe10
        rule = owner.convention(comparison.actual.dtype)
    return applying(measure(comparison.actual, comparison.expected, rule))


def rule_of(standard: str, api: str, dtype: str) -> str:
    """The rule whose columns are filled for an API's output of a floating dtype."""
    return _TOOLS.get(standard, _TOOLS[DEFAULT.name]).rule_of(api, dtype)
