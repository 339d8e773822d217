"""A tool's standard: what the table of a release makes of an output."""

from __future__ import annotations

from pytest_probe.errors import Unsupported
from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.tool_metrics import Measures
from pytest_probe.standards.tools.metrics import against_reference, is_dropout, refuse_random, verdict
from pytest_probe.standards.tools.release import Release
from pytest_probe.standards.tools.rules import RuleVerdict, binary, zeros
from pytest_probe.standards.tools.single_rule import judged_by
from pytest_probe.standards.tools.status import status
from pytest_probe.standards.tools.table import ANY, BENCHMARK, Entry, Rule, Table, packaged


class Tool:
    """name is that of --probe-standard. table: with the project's entries, which the documented rules ask first.

    Slips of a tool that decide are in its table; docs/tool-standards.md lists them, and where this differs.
    """

    def __init__(self, name: str, release: Release, table: Table | None = None) -> None:
        self.name = name
        self.release = release
        self.table = table or packaged()
        self.lists = packaged().with_entries(
            [Entry(api, ANY, rule, {}, "") for rule, apis in release.lists.items() for api in apis]
        )

    def judge(self, comparison: Comparison) -> OutputVerdict:
        """The verdict. Raises Unsupported where the tool has none for such an output."""
        if self.release.rule != "status":
            return judged_by(comparison, self._rule(comparison.call.api, comparison.actual.dtype.name), self.name)
        how = self.release.status
        refuse_random(comparison, counts_zeros=how.zeros_of_dropout)
        measures = against_reference(comparison, self.release)
        if how.zeros_of_dropout and is_dropout(comparison):
            return verdict(comparison, self.name, zeros(comparison.actual, comparison.expected), measures)
        if how.empty == "skip" and not measures.count:
            raise Unsupported(f"{comparison.name}: the tool compares no empty tensors", "no table judges it")
        return verdict(comparison, self.name, self.status(comparison.actual.dtype.name, measures), measures)

    def status(self, dtype: str, measures: Measures) -> RuleVerdict:
        """The Status of a row of the details file."""
        how = self.release.status
        if how.empty == "error" and not measures.count:
            return RuleVerdict("error", "the tool fails empty tensors")
        if how.comparable is not None and dtype not in how.comparable:
            return RuleVerdict("error", f"the tool cannot compare {dtype}")
        if how.integers == "exact" and not dtype.startswith(("float", "bfloat")):
            return binary(measures)
        return status(how, dtype, measures)

    def _rule(self, api: str, dtype: str) -> Rule:
        listed, wanted = self.table.rule(api, dtype), self.release.rule
        if wanted in ("listed", listed.name):
            return listed
        return Rule(wanted, self.table.limits_of(wanted, dtype) or self.table.limits_of(wanted, "float32") or {})

    def rule_of(self, api: str, dtype: str) -> str:
        """The rule whose columns the tool's comparison wants filled for a floating dtype."""
        return self.lists.rule(api, dtype).name if self.release.columns.listed else BENCHMARK
