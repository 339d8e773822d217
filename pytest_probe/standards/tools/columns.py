"""What the columns of msprobe's files hold of an output, by the standard that judges."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import Metric
from pytest_probe.numerics.conventions import Convention
from pytest_probe.numerics.tool_metrics import applying, measure
from pytest_probe.standards.tools import DEFAULT, TOOLS
from pytest_probe.standards.tools.metrics import is_float

# The release whose thresholds count where the standard has none for these columns.
USUAL = "msprobe-1.0"


def measures(comparison: Comparison, standard: str) -> Mapping[str, Metric]:
    """All metrics that apply to an output, by the standard's convention, or that of msprobe 1.0 where it has none."""
    rule = Convention()
    if is_float(comparison):
        tool = TOOLS.get(standard)
        owner = tool if tool and tool.release.columns.own_thresholds else TOOLS[USUAL]
        rule = owner.release.convention_of(comparison.actual.dtype)
    return applying(measure(comparison.actual, comparison.expected, rule))


def rule_of(standard: str, api: str, dtype: str) -> str:
    """The rule whose columns are filled for an API's output of a floating dtype."""
    return TOOLS.get(standard, TOOLS[DEFAULT]).rule_of(api, dtype)
