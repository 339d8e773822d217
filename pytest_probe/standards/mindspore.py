"""msprobe's checker for MindSpore as it is: cosine and largest absolute error, both, in any dtype."""

from __future__ import annotations

import numpy as np

from pytest_probe.errors import Unsupported
from pytest_probe.numerics.convention import convention
from pytest_probe.numerics.measures import Measures, measure
from pytest_probe.standards.measured import as_tool, is_float, own_dtype, refuse_random, verdict
from pytest_probe.standards.preliminary import COSINE, MAX_ABS
from pytest_probe.standards.question import Question
from pytest_probe.standards.ruling import Ruling, first
from pytest_probe.standards.verdict import OutputVerdict


class MindSpore:
    name = "mindspore"

    def judge(self, question: Question) -> OutputVerdict:
        refuse_random(question)
        measures = in_float64(question, self.name)
        if not measures.count:
            raise Unsupported(f"{question.name}: the tool compares no empty tensors", "no table judges it")
        return verdict(question, self.name, self.status(measures), measures)

    def status(self, measures: Measures) -> Ruling:
        """The Status of a row of the details file. NaN is never within, nor is a metric that cannot be had."""
        distance, largest = measures.cosine_distance, measures.max_abs_error
        if distance is None or largest is None:
            return Ruling("error", "the tool has no metrics for it")
        return first(
            "" if 1 - distance > COSINE else f"cosine {1 - distance:.6g}, must be above {COSINE}",
            "" if largest < MAX_ABS else f"largest absolute error {largest:.3g}, must be below {MAX_ABS}",
        )


def in_float64(question: Question, family: str) -> Measures:
    """Integers and bool as numbers too, as the tools take them; the reference in the output's own dtype."""
    if is_float(question):
        return as_tool(question, family, own_dtype)
    actual, expected = (np.asarray(side, np.float64) for side in (question.actual, question.expected))
    return measure(actual, expected, convention(family, np.float64))
