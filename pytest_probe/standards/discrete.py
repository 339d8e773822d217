"""Steps of a staircase: the reference's own step, or the neighbour where the argument lies on the edge."""

from __future__ import annotations

import numpy as np

from pytest_probe.numerics import metrics
from pytest_probe.numerics.dtypes import AnyArray, is_floating, widen
from pytest_probe.numerics.ulp import ulp
from pytest_probe.standards.exact import Exact, alike, correctly_rounded, elements
from pytest_probe.standards.question import Question
from pytest_probe.standards.verdict import OutputVerdict

RUNS = 4
NEAR = 4.0


class Discrete:
    """Equal to the reference, or between it and what it becomes when the arguments move by 4 roundoffs."""

    name = "discrete"

    def judge(self, question: Question) -> OutputVerdict:
        exact = Exact().judge(question)
        if exact.verdict == "pass":
            return exact
        runs = [question.expected, *question.runs("nudged", RUNS)]
        if question.narrow:
            runs += question.runs("narrowed", RUNS) + question.runs("coarse", RUNS)
        with np.errstate(invalid="ignore"):
            low = correctly_rounded(np.minimum.reduce(runs), question.actual.dtype)
            high = correctly_rounded(np.maximum.reduce(runs), question.actual.dtype)
            inside = (question.actual >= low) & (question.actual <= high)
        inside |= _near_inexact_step(question)
        inside |= alike(question.actual, correctly_rounded(question.expected, question.actual.dtype))
        shape, dtype = question.actual.shape, question.actual.dtype.name
        measured = metrics.describe(question.actual, question.expected)
        if inside.all():
            return OutputVerdict(question.name, shape, dtype, "pass", self.name, "", measured)
        count = int(np.count_nonzero(~inside))
        reason = f"{count:,} of {inside.size:,} elements are on another step, and not within 4 roundoffs of its edge"
        return OutputVerdict(
            question.name, shape, dtype, "error", self.name, reason, measured, elements(question, ~inside)
        )


def _near_inexact_step(question: Question) -> AnyArray:
    """Is it the reference's own step, where that is no number of the dtype (round to three decimals), but for rounding
    in the arithmetic that leads there?"""
    wanted = correctly_rounded(question.expected, question.actual.dtype)
    if not is_floating(wanted.dtype):
        return np.zeros(wanted.shape, dtype=bool)
    with np.errstate(invalid="ignore"):
        reach = NEAR * question.roundoff * np.abs(question.expected)
        unit = ulp(question.expected, question.actual.dtype)
        near = np.abs(widen(question.actual) - question.expected) <= reach + unit / 2
        return np.asarray(near & (widen(wanted) != question.expected))
