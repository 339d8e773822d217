"""Rules that turn metrics into verdicts, one module each."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_probe.standards.auto import Auto
from pytest_probe.standards.exact import Exact
from pytest_probe.standards.noise import NoiseStandard
from pytest_probe.standards.question import Question, Standard

STANDARDS: Mapping[str, Standard] = {standard.name: standard for standard in (Auto(), NoiseStandard(), Exact())}

__all__ = ["STANDARDS", "Question", "Standard"]
