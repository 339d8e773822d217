"""The default: the judge of the API's class, else noise."""

from __future__ import annotations

from pytest_probe.standards.discrete import Discrete
from pytest_probe.standards.exact import Exact
from pytest_probe.standards.factorisation import Factorisation
from pytest_probe.standards.noise import NoiseStandard
from pytest_probe.standards.question import Question, Standard
from pytest_probe.standards.random import Random
from pytest_probe.standards.selection import Selection, is_index
from pytest_probe.standards.ties import Ties
from pytest_probe.standards.uninitialised import Uninitialised
from pytest_probe.standards.verdict import OutputVerdict

FORWARD: tuple[tuple[str, Standard], ...] = (
    ("uninitialised", Uninitialised()),
    ("random", Random()),
    ("discrete", Discrete()),
    ("selection", Selection()),
    ("factorisation", Factorisation()),
    ("exact", Exact()),
)
BACKWARD: tuple[tuple[str, Standard], ...] = (
    ("random", Random()),
    ("ties", Ties()),
    ("exact_backward", Exact()),
)


class Auto:
    """Which judge decides is a matter of the API and the direction; classes.yaml lists the APIs."""

    name = "auto"

    def judge(self, question: Question) -> OutputVerdict:
        if question.facts.name in ("max", "min") and question.direction == "forward" and is_index(question):
            return Selection().judge(question)
        if question.facts.name == "embedding" and question.argument(3, "max_norm") is not None:
            return NoiseStandard().judge(question)
        judges = FORWARD if question.direction == "forward" else BACKWARD
        for kind, judge in judges:
            if kind in question.facts.classes:
                return judge.judge(question)
        return NoiseStandard().judge(question)
