"""msprobe 1.0.4 as it is."""

from __future__ import annotations

from pytest_probe.numerics.tool_metrics import Measures
from pytest_probe.standards.tools.msprobe import Msprobe
from pytest_probe.standards.tools.msprobe_checker import MsprobeChecker
from pytest_probe.standards.tools.ratios import Ratios
from pytest_probe.standards.tools.rules import ULP_NARROW
from pytest_probe.standards.tools.table import packaged
from pytest_probe.standards.tools.three_party import EMPTY_SKIPPED, Decision, by_ulp
from pytest_probe.standards.tools.thresholds import DOCUMENTED


class Msprobe10(MsprobeChecker):
    name = "msprobe-1.0"
    help = "the verdicts of msprobe 1.0.4, bugs included"
    limits = DOCUMENTED

    @staticmethod
    def compare(api: str, dtype: str, device: Measures, benchmark: Measures) -> Decision:
        """Its ULP rule never takes a dtype for float32, and judges all by the limits of 16 bit."""
        if not device.count:
            return Decision("", EMPTY_SKIPPED)
        if packaged().rule(api, dtype).name == "ulp":
            return by_ulp(ULP_NARROW, device, benchmark, Ratios())
        return Msprobe.compare(api, dtype, device, benchmark)
