"""msprobe's checker as its releases are: the Status column of its details file, which none of its tables bears on."""

from __future__ import annotations

from typing import ClassVar

from pytest_probe.errors import Unsupported
from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.tool_metrics import Measures
from pytest_probe.standards.tools.metrics import as_tool, is_dropout, msprobe_reference, refuse_random, verdict
from pytest_probe.standards.tools.rules import RuleVerdict, binary, preliminary, zeros
from pytest_probe.standards.tools.three_party import ThreeParty
from pytest_probe.standards.tools.tool import ThresholdTool

FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
EXACT = frozenset({"bool", "uint8", "int32", "int64"})


class MsprobeChecker(ThresholdTool, ThreeParty):
    """comparable: dtypes that the tool compares at all. The slips that decide are kept; docs/tool-standards.md lists
    them, and where this differs."""

    comparable: ClassVar[frozenset[str]] = FLOATS | EXACT
    nan_cosine_passes: ClassVar[bool] = False

    def judge(self, comparison: Comparison) -> OutputVerdict:
        refuse_random(comparison)
        measures = as_tool(comparison, self.convention, msprobe_reference)
        if is_dropout(comparison):
            return verdict(comparison, self.name, zeros(comparison.actual, comparison.expected), measures)
        if not measures.count:
            raise Unsupported(f"{comparison.name}: the tool compares no empty tensors", "no table judges it")
        return verdict(comparison, self.name, self.status(comparison.actual.dtype.name, measures), measures)

    @classmethod
    def status(cls, dtype: str, measures: Measures) -> RuleVerdict:
        """The Status of a row of the details file."""
        if dtype not in cls.comparable:
            return RuleVerdict("error", f"the tool cannot compare {dtype}")
        if dtype not in FLOATS and not dtype.startswith("float8"):
            return binary(measures)
        return preliminary(measures, dtype, nan_cosine_passes=cls.nan_cosine_passes)
