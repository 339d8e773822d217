"""msprobe's checker as it is: the Status column of its details file, which none of its tables bears on.

The slips that decide are kept; docs/standards.md lists them, and where this differs.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_probe.errors import Unsupported
from pytest_probe.numerics.measures import Measures
from pytest_probe.standards.binary import binary
from pytest_probe.standards.measured import as_tool, is_dropout, msprobe_reference, refuse_random, verdict
from pytest_probe.standards.preliminary import preliminary
from pytest_probe.standards.question import Question
from pytest_probe.standards.ruling import Ruling
from pytest_probe.standards.verdict import OutputVerdict
from pytest_probe.standards.zeros import zeros

FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
EXACT = frozenset({"bool", "uint8", "int32", "int64"})


@dataclass(frozen=True, slots=True)
class MsprobeTool:
    """name is that of the convention as well. comparable: dtypes that the tool compares at all."""

    name: str
    comparable: frozenset[str]
    nan_cosine_passes: bool

    def judge(self, question: Question) -> OutputVerdict:
        refuse_random(question)
        measures = as_tool(question, self.name, msprobe_reference)
        if is_dropout(question):
            return verdict(question, self.name, zeros(question.actual, question.expected), measures)
        if not measures.count:
            raise Unsupported(f"{question.name}: the tool compares no empty tensors", "no table judges it")
        return verdict(question, self.name, self.status(question.actual.dtype.name, measures), measures)

    def status(self, dtype: str, measures: Measures) -> Ruling:
        """The Status of a row of the details file."""
        if dtype not in self.comparable:
            return Ruling("error", f"the tool cannot compare {dtype}")
        if dtype not in FLOATS and not dtype.startswith("float8"):
            return binary(measures)
        return preliminary(measures, dtype, nan_cosine_passes=self.nan_cosine_passes)


MSPROBE_1_0 = MsprobeTool("msprobe-1.0", FLOATS | EXACT, nan_cosine_passes=False)
MSPROBE_8 = MsprobeTool("msprobe-8", FLOATS | EXACT, nan_cosine_passes=False)
MSPROBE_26 = MsprobeTool(
    "msprobe-26", FLOATS | EXACT | {"int8", "float8_e4m3fn", "float8_e5m2"}, nan_cosine_passes=True
)
