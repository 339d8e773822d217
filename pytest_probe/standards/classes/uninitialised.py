"""Memory as it was found: only the shape and dtype of the output mean something, and those are checked before."""

from __future__ import annotations

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import OutputVerdict


class Uninitialised:
    name = "uninitialised"

    def judge(self, comparison: Comparison) -> OutputVerdict:
        return OutputVerdict(comparison.name, comparison.actual.shape, comparison.actual.dtype.name, "pass", self.name)
