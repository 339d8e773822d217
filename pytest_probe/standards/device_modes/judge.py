"""The verdict of a standard, under the allowed device modes, and the likely cause of an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.device_modes import Behaviour
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.standards.base import Standard
from pytest_probe.standards.device_modes import under_modes
from pytest_probe.standards.diagnosis import Depth, diagnose


def judge_with_modes(
    standard: Standard,
    comparison: Comparison,
    allowed: Callable[[], Sequence[Behaviour]],
    *,
    depth: Callable[[], Depth] = lambda: "whole",
) -> OutputVerdict:
    """The standard's verdict; if that is an error or a warning, the verdict under an allowed mode that explains it,
    else the error with its likely cause.

    allowed gives the modes, depth how far to search for the cause; both are called only after an error or a warning.
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
