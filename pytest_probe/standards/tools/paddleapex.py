"""PaddleAPEX's direct comparison as it is: msprobe's three-state status for every API, its tables never asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.dtypes import WIDE_DTYPES
from pytest_probe.numerics.tool_metrics import Measures
from pytest_probe.standards.tools.metrics import as_tool, is_dropout, is_float, refuse_random, verdict
from pytest_probe.standards.tools.ratios import Ratios, compared
from pytest_probe.standards.tools.rules import RuleVerdict, binary, preliminary, zeros
from pytest_probe.standards.tools.three_party import Decision, ThreeParty, by_ratio
from pytest_probe.standards.tools.three_party import is_float_name as is_float_dtype
from pytest_probe.standards.tools.thresholds import DtypeLimits
from pytest_probe.standards.tools.tool import ThresholdTool

EMPTY_FAILS = RuleVerdict("error", "the tool fails empty tensors")


class PaddleApex(ThresholdTool, ThreeParty):
    name = "paddleapex"
    help = "the verdicts of PaddleAPEX, bugs included"
    limits: ClassVar[Mapping[str, DtypeLimits]] = {
        "float16": DtypeLimits(1e-3, 1e-5, 1e-3, 1e-3),
        "bfloat16": DtypeLimits(1e-3, 1e-5, 1e-3, 4e-3),
        "float32": DtypeLimits(1e-6, 1e-9, 1e-6, 1e-6),
    }
    counts_ulp = False

    def judge(self, comparison: Comparison) -> OutputVerdict:
        refuse_random(comparison)
        measures = as_tool(comparison, self.convention, _in_float32)
        if is_dropout(comparison):
            return verdict(comparison, self.name, zeros(comparison.actual, comparison.expected), measures)
        return verdict(comparison, self.name, self.status(comparison.actual.dtype.name, measures), measures)

    @staticmethod
    def status(dtype: str, measures: Measures) -> RuleVerdict:
        """The Status of a row of the details file."""
        if not measures.count:
            return EMPTY_FAILS
        return preliminary(measures, dtype) if dtype.startswith(("float", "bfloat")) else binary(measures)

    @staticmethod
    def compare(api: str, dtype: str, device: Measures, benchmark: Measures) -> Decision:
        """Its tables name APIs in a way that never matches, so that ratios judge all floats."""
        if not is_float_dtype(dtype):
            return Decision("binary", binary(device))
        return by_ratio(dtype, compared(device, benchmark, Ratios(nonfinite="unbounded")))


def _in_float32(comparison: Comparison) -> str:
    """The benchmark is the same call in float32, whatever the device runs in."""
    wide = not is_float(comparison) or comparison.actual.dtype in WIDE_DTYPES
    return "float64" if wide else "float32"
