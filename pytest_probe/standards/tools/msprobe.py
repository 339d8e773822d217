"""msprobe's rules as its documentation of 1.0.4 has them."""

from __future__ import annotations

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.tool_metrics import Measures
from pytest_probe.standards.tools.benchmark import by_ratios
from pytest_probe.standards.tools.ratios import Ratios
from pytest_probe.standards.tools.rules import UlpLimits
from pytest_probe.standards.tools.single_rule import judged_by, ruled
from pytest_probe.standards.tools.table import BENCHMARK, packaged
from pytest_probe.standards.tools.three_party import Decision, ThreeParty, by_ulp, is_float_name
from pytest_probe.standards.tools.tool import Tool


class Msprobe(Tool, ThreeParty):
    """A rule for each API by its tables, the project's own before them.

    Where the benchmark rule would judge and there is no benchmark, the three-state status does. Slips of the tool are
    mended: docs/tool-standards.md lists them.
    """

    name = "msprobe"
    help = "the documented rules of msprobe; its lists say which rule judges an API"

    def judge(self, comparison: Comparison) -> OutputVerdict:
        return judged_by(comparison, self.table.rule(comparison.call.api, comparison.actual.dtype.name), self.name)

    @staticmethod
    def compare(api: str, dtype: str, device: Measures, benchmark: Measures) -> Decision:
        rule = packaged().rule(api, dtype)
        if not is_float_name(dtype) or rule.name == BENCHMARK:
            return by_ratios(dtype, device, benchmark)
        if rule.name == "ulp":
            return by_ulp(UlpLimits(rule.limits["over_ratio"], rule.limits["mean"]), device, benchmark, Ratios())
        return Decision(rule.name, ruled(rule, dtype, device))
