"""The default: the judge of the API's class, else noise, and a warning where the API's table disagrees with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pytest_probe.standards.discrete import Discrete
from pytest_probe.standards.exact import Exact
from pytest_probe.standards.factorisation import Factorisation
from pytest_probe.standards.neighbours import Neighbours
from pytest_probe.standards.noise import NoiseStandard
from pytest_probe.standards.own_dtype import OwnDtype
from pytest_probe.standards.question import Question, Standard
from pytest_probe.standards.random import Random
from pytest_probe.standards.second_opinion import with_table
from pytest_probe.standards.selection import Selection, is_index
from pytest_probe.standards.table import Table, packaged
from pytest_probe.standards.ties import Ties
from pytest_probe.standards.uninitialised import Uninitialised
from pytest_probe.standards.verdict import OutputVerdict
from pytest_probe.standards.writes import Writes

FORWARD: tuple[tuple[str, Standard], ...] = (
    ("uninitialised", Uninitialised()),
    ("random", Random()),
    ("discrete", Discrete()),
    ("selection", Selection()),
    ("factorisation", Factorisation()),
    ("own_dtype", OwnDtype()),
    ("writes", Writes()),
    ("exact", Exact()),
)
BACKWARD: tuple[tuple[str, Standard], ...] = (
    ("random", Random()),
    ("ties", Ties()),
    ("factorisation", Factorisation()),
    ("exact_backward", Exact()),
)


class Auto:
    """Which judge decides is a matter of the API and the direction; classes.yaml lists the APIs."""

    name = "auto"

    def __init__(self, table: Table | None = None) -> None:
        self.table = table or packaged()

    def judge(self, question: Question) -> OutputVerdict:
        judge = _by_arguments(question) if question.direction == "forward" else None
        verdict = (judge or _by_class(question)).judge(question)
        if verdict.verdict == "pass" and verdict.standard == "noise":
            return with_table(question, verdict, self.table, self.name)
        return verdict


def _by_arguments(question: Question) -> Standard | None:
    """The judge where an argument decides: one API, several functions."""
    name = question.facts.name
    if name in ("max", "min") and is_index(question):
        return Selection()
    if name in ("abs", "absolute") and _is_of_complex(question):
        return NoiseStandard()
    if name == "embedding" and question.argument(3, "max_norm") is not None:
        return NoiseStandard()
    if name in ("index_put", "put") and question.argument(3, "accumulate"):
        return NoiseStandard()
    if name == "scatter" and question.kwargs.get("reduce") is not None:
        return NoiseStandard()
    if name in ("interpolate", "upsample") and question.argument(3, "mode", "nearest") in ("nearest", "nearest-exact"):
        return Neighbours()
    if name == "upsample_nearest":
        return Neighbours()
    if name == "histogram" and (question.name == "output.1" or _weighs(question, 3)):
        return Edges() if question.name == "output.1" else NoiseStandard()
    if name == "bincount" and question.argument(1, "weights") is not None:
        return NoiseStandard()
    if name in ("div", "divide") and question.kwargs.get("rounding_mode") is not None:
        return Discrete()
    if name == "round" and question.argument(1, "decimals", 0):
        return Discrete()
    return None


def _is_of_complex(question: Question) -> bool:
    values = question.argument(0, "input")
    return isinstance(values, np.ndarray) and values.dtype.kind == "c"


def _weighs(question: Question, place: int) -> bool:
    """Does a histogram sum weights, or divide by widths, rather than count?"""
    return question.argument(place, "weight") is not None or bool(question.argument(place + 1, "density", False))


class Edges:
    """Bin edges, by noise as a factory's numbers: they divide a range evenly, and may cross zero in it."""

    name = "noise"

    def judge(self, question: Question) -> OutputVerdict:
        facts = replace(question.facts, classes=question.facts.classes | {"factory"})
        return NoiseStandard().judge(replace(question, facts=facts))


def _by_class(question: Question) -> Standard:
    judges = FORWARD if question.direction == "forward" else BACKWARD
    return next((judge for kind, judge in judges if kind in question.facts.classes), NoiseStandard())
