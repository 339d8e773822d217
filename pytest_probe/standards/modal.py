"""The verdict of a standard, of the device modes that are allowed, and what would explain an error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_probe.frameworks.modes import Behaviour
from pytest_probe.standards.diagnosis import diagnose
from pytest_probe.standards.modes import under_modes
from pytest_probe.standards.question import Question, Standard
from pytest_probe.standards.verdict import OutputVerdict


def judged_with_modes(standard: Standard, question: Question, allowed: Sequence[Behaviour]) -> OutputVerdict:
    """The standard's verdict; where it is none to pass, that under an allowed mode, else with the likely cause."""
    verdict = standard.judge(question)
    if verdict.verdict not in ("error", "warning"):
        return verdict
    passed = under_modes(standard, question, verdict, allowed)
    if passed is not None or verdict.verdict == "warning":
        return passed or verdict
    cause = diagnose(standard, question, verdict)
    return replace(verdict, reason=f"{verdict.reason}; {cause}") if cause else verdict
