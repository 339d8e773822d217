"""The verdict of a standard, of the device modes that are allowed, and what would explain an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.device_modes import Behaviour
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.standards.base import Standard
from pytest_probe.standards.device_modes.emulate import under_modes
from pytest_probe.standards.diagnosis import Depth, diagnose


def judged_with_modes(
    standard: Standard,
    comparison: Comparison,
    allowed: Callable[[], Sequence[Behaviour]],
    *,
    depth: Callable[[], Depth] = lambda: "whole",
) -> OutputVerdict:
    """The standard's verdict; where it is none to pass, that under an allowed mode, else with the likely cause.

    allowed gives the modes, depth how far the cause is looked for; both are asked only where the verdict is no pass.
    """
    verdict = standard.judge(comparison)
    if verdict.verdict not in ("error", "warning"):
        return verdict
    passed = under_modes(standard, comparison, verdict, allowed())
    if passed is not None or verdict.verdict == "warning":
        return passed or verdict
    deep = depth()
    diagnosis = None if deep == "none" else diagnose(standard, comparison, verdict, deep)
    return replace(verdict, diagnosis=diagnosis, basis=None)
