"""What PaddleAPEX's acc_multi_cmp.py does and has in its file, and msprobe's comparison has not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from pytest_probe.features.msprobe_csv.rows import OUTCOME, SHARES, Row
from pytest_probe.standards.tools.release import RuleVerdict
from pytest_probe.standards.tools.table import BENCHMARK
from pytest_probe.standards.tools.tool import UNSUPPORTED, Decision

_EQUAL = 1e-6


def is_paddleapex(standard: str) -> bool:
    return standard.startswith("paddleapex")


def with_known_share(decision: Decision, device: Row, *, as_tool: bool) -> Decision:
    """The tool ends at a row without the share of unequal elements: of Python numbers that differ, or of nothing."""
    share = device.measures.binary_mismatch_ratio
    if share is not None and math.isfinite(share):
        return decision
    if as_tool:
        return Decision("", RuleVerdict("skip", "no share of unequal elements: the tool ends here"))
    return replace(decision, ruling=RuleVerdict("error" if device.status == "error" else "pass", device.reason))


def paddleapex_cells(decision: Decision, device: Row | None, benchmark: Row | None) -> Mapping[str, str]:
    """Cells that msprobe's file has not, or has otherwise."""
    if decision.ruling == UNSUPPORTED:
        return {OUTCOME: " "}
    if decision.rule != BENCHMARK or device is None or benchmark is None:
        return {}
    return {
        column: _ratio(getattr(device.measures, name), getattr(benchmark.measures, name))
        for column, name in SHARES.items()
    }


def _ratio(device: Any, benchmark: Any) -> str:
    """Of the shares of elements that are not near, for information."""
    if device is None or benchmark is None or not math.isfinite(device) or not math.isfinite(benchmark):
        return ""
    if abs(device - benchmark) < _EQUAL:
        return "equal, delta<1e-6"
    return str((1 - device) / (1 - benchmark)) if benchmark != 1 else ""
