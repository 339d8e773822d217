"""msprobe: its rules as documented, and its checker as each release is."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_probe.core.comparison import Comparison
from pytest_probe.core.verdict import OutputVerdict
from pytest_probe.errors import Unsupported
from pytest_probe.numerics.tool_metrics import Measures
from pytest_probe.standards.tools.metrics import as_tool, is_dropout, msprobe_reference, refuse_random, verdict
from pytest_probe.standards.tools.rules import RuleVerdict, binary, preliminary, zeros
from pytest_probe.standards.tools.single_rule import judged_by
from pytest_probe.standards.tools.table import Table, packaged


class Msprobe:
    """As its documentation of 1.0.4 has it: a rule for each API by its tables.

    Where the benchmark rule would judge and there is no benchmark, the three-state status does. Slips of the tool are
    mended: docs/standards.md lists them.
    """

    name = "msprobe"

    def __init__(self, table: Table | None = None) -> None:
        self.table = table or packaged()

    def judge(self, comparison: Comparison) -> OutputVerdict:
        return judged_by(comparison, self.table.rule(comparison.call.api, comparison.actual.dtype.name), self.name)


FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
EXACT = frozenset({"bool", "uint8", "int32", "int64"})


@dataclass(frozen=True, slots=True)
class MsprobeTool:
    """Its checker as it is: the Status column of its details file, which none of its tables bears on.

    name is that of the convention as well. comparable: dtypes that the tool compares at all. The slips that decide are
    kept; docs/standards.md lists them, and where this differs.
    """

    name: str
    comparable: frozenset[str]
    nan_cosine_passes: bool

    def judge(self, comparison: Comparison) -> OutputVerdict:
        refuse_random(comparison)
        measures = as_tool(comparison, self.name, msprobe_reference)
        if is_dropout(comparison):
            return verdict(comparison, self.name, zeros(comparison.actual, comparison.expected), measures)
        if not measures.count:
            raise Unsupported(f"{comparison.name}: the tool compares no empty tensors", "no table judges it")
        return verdict(comparison, self.name, self.status(comparison.actual.dtype.name, measures), measures)

    def status(self, dtype: str, measures: Measures) -> RuleVerdict:
        """The Status of a row of the details file."""
        if dtype not in self.comparable:
            return RuleVerdict("error", f"the tool cannot compare {dtype}")
        if dtype not in FLOATS and not dtype.startswith("float8"):
            return binary(measures)
        return preliminary(measures, dtype, nan_cosine_passes=self.nan_cosine_passes)


MSPROBE_1_0 = MsprobeTool("msprobe-1.0", FLOATS | EXACT, nan_cosine_passes=False)
MSPROBE_8 = MsprobeTool("msprobe-8", FLOATS | EXACT, nan_cosine_passes=False)
MSPROBE_26 = MsprobeTool(
    "msprobe-26", FLOATS | EXACT | {"int8", "float8_e4m3fn", "float8_e5m2"}, nan_cosine_passes=True
)
