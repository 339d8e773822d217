"""ptdbg_ascend's "Accuracy Reached or Not", as version 4 decides it.

"Yes" passes, "No" is an error. "Nan", where the cosine cannot be had (one element, one side zero), is a warning: the
tool has not decided.
"""

from __future__ import annotations

import math

import numpy.typing as npt

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.conventions import Convention
from pytest_probe.numerics.dtypes import float_format
from pytest_probe.numerics.tool_metrics import Measures
from pytest_probe.standards.tools.metrics import refuse_random, verdict
from pytest_probe.standards.tools.mindspore import in_float64
from pytest_probe.standards.tools.rules import PASS, RuleVerdict
from pytest_probe.standards.tools.tool import Tool

COSINE, MAX_ABS = 0.99, 0.001
WORST_COSINE, WORST_ABS = 0.9, 1.0
UNDECIDED = RuleVerdict("warning", "the tool prints Nan: no cosine")


class Ptdbg(Tool):
    name = "ptdbg"
    help = "the verdicts of ptdbg_ascend 4, bugs included"

    def judge(self, comparison: Comparison) -> OutputVerdict:
        refuse_random(comparison, counts_zeros=False)
        measures = in_float64(comparison, self.convention)
        return verdict(comparison, self.name, accuracy_reached(measures), measures)

    @staticmethod
    def convention(dtype: npt.DTypeLike, reference: npt.DTypeLike = "float64") -> Convention:
        return Convention(eps=2 * float_format(reference).roundoff, eps_at="zeros", alike=True)


def accuracy_reached(measures: Measures) -> RuleVerdict:
    """Version 4."""
    if measures.nonfinite_mismatch:
        return RuleVerdict("error", "NaN or inf stand at other places than in the reference")
    cosine = _cosine(measures)
    largest = measures.max_abs_error
    if cosine is None or largest is None or math.isnan(cosine) or math.isnan(largest):
        return UNDECIDED
    ruling = accuracy_reached_2_3(cosine, largest)
    if ruling.verdict == "pass" and (cosine < WORST_COSINE or largest > WORST_ABS):
        return _no(cosine, largest)
    return ruling


def accuracy_reached_2_3(cosine: float, largest: float) -> RuleVerdict:
    """Version 2.3: fails only where both are beyond their limits."""
    if math.isnan(cosine) or math.isnan(largest):
        return UNDECIDED
    return _no(cosine, largest) if cosine < COSINE and largest > MAX_ABS else PASS


def _no(cosine: float, largest: float) -> RuleVerdict:
    return RuleVerdict("error", f"cosine {cosine:.6g}, largest absolute error {largest:.3g}")


def _cosine(measures: Measures) -> float | None:
    """1 where both sides are zero; None for a single element, and beside a side that is zero."""
    if measures.count == 1 or measures.cosine_distance is not None:
        return None if measures.cosine_distance is None else 1 - measures.cosine_distance
    both = (measures.actual_magnitude, measures.expected_magnitude)
    return 1.0 if both == (0, 0) else None
