"""PaddleAPEX's direct comparison as it is: msprobe's three-state status for every API, its tables never asked."""

from __future__ import annotations

from pytest_probe.core.comparison import Comparison
from pytest_probe.core.verdict import OutputVerdict
from pytest_probe.numerics.tool_metrics import Measures
from pytest_probe.standards.tools.metrics import as_tool, is_dropout, is_float, refuse_random, verdict
from pytest_probe.standards.tools.rules import RuleVerdict, binary, preliminary, zeros

EMPTY = RuleVerdict("error", "the tool fails empty tensors")


class PaddleApex:
    name = "paddleapex"

    def judge(self, comparison: Comparison) -> OutputVerdict:
        refuse_random(comparison)
        measures = as_tool(comparison, self.name, _in_float32)
        if is_dropout(comparison):
            return verdict(comparison, self.name, zeros(comparison.actual, comparison.expected), measures)
        return verdict(comparison, self.name, self.status(comparison.actual.dtype.name, measures), measures)

    def status(self, dtype: str, measures: Measures) -> RuleVerdict:
        """The Status of a row of the details file."""
        if not measures.count:
            return EMPTY
        return preliminary(measures, dtype) if dtype.startswith(("float", "bfloat")) else binary(measures)


def _in_float32(comparison: Comparison) -> str:
    """The benchmark is the same call in float32, whatever the device runs in."""
    wide = not is_float(comparison) or comparison.actual.dtype.name in ("float64", "complex128")
    return "float64" if wide else "float32"
