"""The documented rule of ratios for all floats, whatever the lists of APIs say."""

from __future__ import annotations

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.tool_metrics import Measures
from pytest_probe.standards.tools.ratios import Ratios, compared
from pytest_probe.standards.tools.rules import binary
from pytest_probe.standards.tools.single_rule import ByRule
from pytest_probe.standards.tools.table import BENCHMARK
from pytest_probe.standards.tools.three_party import Decision, ThreeParty, by_ratio, is_float_name
from pytest_probe.standards.tools.tool import Tool


class Benchmark(Tool, ThreeParty):
    """Without another run's results an output is judged by the three-state status."""

    name = BENCHMARK
    help = "compares a device's errors with those of the run that --probe-benchmark names"

    def judge(self, comparison: Comparison) -> OutputVerdict:
        return ByRule(self.name, self.table).judge(comparison)

    @staticmethod
    def compare(api: str, dtype: str, device: Measures, benchmark: Measures) -> Decision:
        return by_ratios(dtype, device, benchmark)


def by_ratios(dtype: str, device: Measures, benchmark: Measures) -> Decision:
    if not is_float_name(dtype):
        return Decision("binary", binary(device))
    return by_ratio(dtype, compared(device, benchmark, Ratios()))
