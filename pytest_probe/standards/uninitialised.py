"""Memory as it was found: only the shape and dtype of the output mean something, and those are checked before."""

from __future__ import annotations

from pytest_probe.standards.question import Question
from pytest_probe.standards.verdict import OutputVerdict


class Uninitialised:
    name = "uninitialised"

    def judge(self, question: Question) -> OutputVerdict:
        return OutputVerdict(question.name, question.actual.shape, question.actual.dtype.name, "pass", self.name)
