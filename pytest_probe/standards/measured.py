"""From a question to the metrics that a tool would have taken of it, and from its ruling to a verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import numpy as np

from pytest_probe.errors import Unsupported
from pytest_probe.numerics import metrics
from pytest_probe.numerics.convention import Convention, convention
from pytest_probe.numerics.dtypes import is_complex, is_floating, round_to
from pytest_probe.numerics.measures import Measures, applying, measure
from pytest_probe.standards.exact import alike, correctly_rounded, elements
from pytest_probe.standards.question import Question
from pytest_probe.standards.ruling import Ruling
from pytest_probe.standards.verdict import Element, Metric, OutputVerdict

NARROW = ("float16", "bfloat16")
# What a tool compares with: float64 all the time, or its own next precision, or the output's dtype.
Reference: TypeAlias = Literal["float64", "raised", "same"]
REFERENCE_IN_FLOAT32 = ("conv1d", "conv2d")


def is_float(question: Question) -> bool:
    return is_floating(question.actual.dtype) or is_complex(question.actual.dtype)


def refuse_random(question: Question) -> None:
    """Raises Unsupported where no reference has the one right answer, and the share of zeros tells nothing."""
    kinds = question.facts.classes & {"random", "uninitialised"}
    if kinds and not is_dropout(question):
        raise Unsupported(f"{question.name}: no table judges what is {min(kinds)}", "no table judges it")


def is_dropout(question: Question) -> bool:
    return "dropout" in question.api


def in_convention(question: Question, rule: Convention) -> Measures:
    """Against the float64 reference."""
    return measure(question.actual, question.expected, rule)


def as_tool(question: Question, family: str, raised: Callable[[Question], str]) -> Measures:
    """Against the reference in the dtype that the tool computes it in."""
    if not is_float(question):
        return measure(question.actual, question.expected, Convention())
    reference = raised(question)
    rule = convention(family, question.actual.dtype, reference)
    with np.errstate(over="ignore"):
        return measure(question.actual, _rounded(question, reference), rule)


def _rounded(question: Question, reference: str) -> np.ndarray:
    if is_complex(question.actual.dtype) or reference == "float64":
        return question.expected
    return round_to(question.expected, reference)


def msprobe_reference(question: Question) -> str:
    """The next precision up, one for all: float32 where 16-bit tensors take part, and for convolutions."""
    if question.actual.dtype.name in NARROW or question.narrow or question.facts.name in REFERENCE_IN_FLOAT32:
        return "float32"
    return "float64"


def own_dtype(question: Question) -> str:
    return question.actual.dtype.name


def verdict(
    question: Question, standard: str, ruling: Ruling, measures: Measures, more: Mapping[str, Metric] | None = None
) -> OutputVerdict:
    """With our own metrics first, and those that the rule saw."""
    taken: dict[str, Metric] = dict(metrics.describe(question.actual, question.expected))
    taken |= applying(measures)
    return OutputVerdict(
        question.name,
        question.actual.shape,
        question.actual.dtype.name,
        ruling.verdict,
        standard,
        ruling.reason,
        {**taken, **(more or {})},
        () if ruling.verdict == "pass" else differing(question),
    )


def differing(question: Question) -> tuple[Element, ...]:
    """The elements that are farthest off, of those that are not the correctly rounded reference."""
    return elements(question, ~alike(question.actual, correctly_rounded(question.expected, question.actual.dtype)))
