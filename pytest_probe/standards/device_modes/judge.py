"""The verdict of a standard, of the device modes that are allowed, and what would explain an error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_probe.core.comparison import Comparison
from pytest_probe.core.device_modes import Behaviour
from pytest_probe.core.verdict import OutputVerdict
from pytest_probe.standards.base import Standard
from pytest_probe.standards.device_modes.emulate import under_modes
from pytest_probe.standards.diagnosis import diagnose


def judged_with_modes(
    standard: Standard, comparison: Comparison, allowed: Sequence[Behaviour], *, diagnosed: bool = True
) -> OutputVerdict:
    """The standard's verdict; where it is none to pass, that under an allowed mode, else with the likely cause, unless
    nobody will read it (diagnosed)."""
    verdict = standard.judge(comparison)
    if verdict.verdict not in ("error", "warning"):
        return verdict
    passed = under_modes(standard, comparison, verdict, allowed)
    if passed is not None or verdict.verdict == "warning" or not diagnosed:
        return passed or verdict
    return replace(verdict, diagnosis=diagnose(standard, comparison, verdict))
