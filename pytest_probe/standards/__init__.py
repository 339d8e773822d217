"""Rules that turn two arrays into a verdict.

In: a `Comparison`, one output and its reference. Out: an `OutputVerdict`. `auto` picks the rule of an API's class.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_probe.model.comparison import Comparison, Standard
from pytest_probe.standards.auto import Auto, OneRule
from pytest_probe.standards.exact import Exact
from pytest_probe.standards.finite import Finite
from pytest_probe.standards.noise.standard import NoiseStandard
from pytest_probe.standards.tools import rule_standards, tool_standards
from pytest_probe.standards.tools.table import Table, packaged


def standards(table: Table) -> Mapping[str, Standard]:
    """All standards by name; standards with a table ask this one."""
    known: tuple[Standard, ...] = (
        Auto(table),
        OneRule(NoiseStandard()),
        OneRule(Exact()),
        Finite(),
        *rule_standards(table).values(),
        *tool_standards(table).values(),
    )
    return {standard.name: standard for standard in known}


STANDARDS: Mapping[str, Standard] = standards(packaged())

__all__ = ["STANDARDS", "Comparison", "Standard", "standards"]
