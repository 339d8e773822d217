"""Rules that turn two arrays into a verdict.

In: a `Comparison`, one output beside its reference. Out: an `OutputVerdict`. `auto` picks the rule of an API's class.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_probe.core.comparison import Comparison
from pytest_probe.standards.auto import Auto
from pytest_probe.standards.base import Standard
from pytest_probe.standards.exact import Exact
from pytest_probe.standards.noise.standard import NoiseStandard
from pytest_probe.standards.tools.mindspore import MindSpore
from pytest_probe.standards.tools.msprobe import MSPROBE_1_0, MSPROBE_8, MSPROBE_26, Msprobe
from pytest_probe.standards.tools.paddleapex import PaddleApex
from pytest_probe.standards.tools.ptdbg import Ptdbg
from pytest_probe.standards.tools.single_rule import ByRule
from pytest_probe.standards.tools.table import BENCHMARK, RULES, Table, packaged


def standards(table: Table) -> Mapping[str, Standard]:
    """All standards by name; those that ask a table ask this one."""
    known: tuple[Standard, ...] = (
        Auto(table),
        NoiseStandard(),
        Exact(),
        *(ByRule(name, table) for name in (*RULES, BENCHMARK)),
        Msprobe(table),
        MSPROBE_1_0,
        MSPROBE_8,
        MSPROBE_26,
        PaddleApex(),
        MindSpore(),
        Ptdbg(),
    )
    return {standard.name: standard for standard in known}


STANDARDS: Mapping[str, Standard] = standards(packaged())

__all__ = ["STANDARDS", "Comparison", "Standard", "standards"]
