"""The field's metrics of an output, as the tools' files hold them."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_probe.numerics.convention import Convention, convention
from pytest_probe.numerics.measures import applying, measure
from pytest_probe.standards.measured import is_float
from pytest_probe.standards.question import Question
from pytest_probe.standards.verdict import Metric

DEFAULT = "msprobe-1.0"
# Standards whose tools have a convention of their own for the columns of these files.
FAMILIES = ("msprobe-1.0", "msprobe-8", "msprobe-26", "paddleapex")


def measures(question: Question, standard: str) -> Mapping[str, Metric]:
    """All measures that apply, by the convention of the standard's family, msprobe 1.0's for others."""
    dtype = question.actual.dtype
    rule = Convention()
    if is_float(question):
        rule = convention(standard if standard in FAMILIES else DEFAULT, dtype)
    return applying(measure(question.actual, question.expected, rule))
