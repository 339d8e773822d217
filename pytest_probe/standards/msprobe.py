"""msprobe's rules as its documentation of 1.0.4 has them: a rule for each API by its tables.

Where the benchmark rule would judge and there is no benchmark, the three-state status does. Slips of the tool are
mended: docs/standards.md lists them.
"""

from __future__ import annotations

from pytest_probe.standards.by_rule import judged_by
from pytest_probe.standards.question import Question
from pytest_probe.standards.table import BENCHMARK, Rule, Table, packaged
from pytest_probe.standards.verdict import OutputVerdict


class Msprobe:
    name = "msprobe"

    def __init__(self, table: Table | None = None) -> None:
        self.table = table or packaged()

    def judge(self, question: Question) -> OutputVerdict:
        dtype = question.actual.dtype.name
        rule = self.table.rule(question.api, dtype)
        if rule.name == BENCHMARK and dtype.startswith("float8"):
            # A relative error of 1 % is nothing there; msprobe 26 judges float8 by ULP.
            rule = Rule("ulp", self.table.limits_of("ulp", "bfloat16") or {}, rule.justification)
        return judged_by(question, rule, self.name)
