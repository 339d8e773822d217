"""msprobe's rules as its documentation of 1.0.4 has them: a rule for each API by its tables.

Where the benchmark rule would judge and there is no benchmark, the three-state status does. Slips of the tool are
mended: docs/standards.md lists them.
"""

from __future__ import annotations

from pytest_probe.standards.by_rule import judged_by
from pytest_probe.standards.question import Question
from pytest_probe.standards.table import Table, packaged
from pytest_probe.standards.verdict import OutputVerdict


class Msprobe:
    name = "msprobe"

    def __init__(self, table: Table | None = None) -> None:
        self.table = table or packaged()

    def judge(self, question: Question) -> OutputVerdict:
        return judged_by(question, self.table.rule(question.api, question.actual.dtype.name), self.name)
