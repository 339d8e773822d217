"""PaddleAPEX's direct comparison as it is: msprobe's three-state status for every API, its tables never asked."""

from __future__ import annotations

from pytest_probe.numerics.measures import Measures
from pytest_probe.standards.binary import binary
from pytest_probe.standards.measured import as_tool, is_dropout, is_float, refuse_random, verdict
from pytest_probe.standards.preliminary import preliminary
from pytest_probe.standards.question import Question
from pytest_probe.standards.ruling import Ruling
from pytest_probe.standards.verdict import OutputVerdict
from pytest_probe.standards.zeros import zeros

EMPTY = Ruling("error", "the tool fails empty tensors")


class PaddleApex:
    name = "paddleapex"

    def judge(self, question: Question) -> OutputVerdict:
        refuse_random(question)
        measures = as_tool(question, self.name, _in_float32)
        if is_dropout(question):
            return verdict(question, self.name, zeros(question.actual, question.expected), measures)
        return verdict(question, self.name, self.status(question.actual.dtype.name, measures), measures)

    def status(self, dtype: str, measures: Measures) -> Ruling:
        """The Status of a row of the details file."""
        if not measures.count:
            return EMPTY
        return preliminary(measures, dtype) if dtype.startswith(("float", "bfloat")) else binary(measures)


def _in_float32(question: Question) -> str:
    """The benchmark is the same call in float32, whatever the device runs in."""
    wide = not is_float(question) or question.actual.dtype.name in ("float64", "complex128")
    return "float64" if wide else "float32"
