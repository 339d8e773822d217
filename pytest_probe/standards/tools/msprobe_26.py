"""msprobe 26 as it is."""

from __future__ import annotations

from pytest_probe.numerics.tool_metrics import Measures
from pytest_probe.standards.tools.levels import floor, limits_of
from pytest_probe.standards.tools.msprobe_checker import EXACT, FLOATS, MsprobeChecker
from pytest_probe.standards.tools.ratios import LIMITS, Ratios, compared
from pytest_probe.standards.tools.rules import ULP_NARROW, binary, ulp
from pytest_probe.standards.tools.table import BENCHMARK
from pytest_probe.standards.tools.three_party import EMPTY_SKIPPED, Decision, by_ratio, is_float_name
from pytest_probe.standards.tools.thresholds import LATER


class Msprobe26(MsprobeChecker):
    name = "msprobe-26"
    help = "the verdicts of msprobe 26, bugs included"
    limits = LATER
    comparable = FLOATS | EXACT | {"int8", "float8_e4m3fn", "float8_e5m2"}
    nan_cosine_passes = True

    def rule_of(self, api: str, dtype: str) -> str:
        return BENCHMARK

    @staticmethod
    def compare(api: str, dtype: str, device: Measures, benchmark: Measures) -> Decision:
        """Ratios for all floats, whatever its lists of APIs say; no warnings."""
        if not device.count:
            return Decision("", EMPTY_SKIPPED)
        if not is_float_name(dtype):
            return Decision("binary", binary(device))
        if dtype.startswith("float8"):
            return Decision("ulp", ulp(device, ULP_NARROW))
        limits = {**LIMITS, **limits_of(api)}
        return by_ratio(dtype, compared(device, benchmark, Ratios(floor=floor(dtype)), limits, warns=False))
