"""msprobe's checker for MindSpore as it is: cosine and largest absolute error, both, in any dtype."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pytest_probe.errors import Unsupported
from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.conventions import Convention
from pytest_probe.numerics.tool_metrics import Measures, measure
from pytest_probe.standards.tools.metrics import ConventionOf, as_tool, is_float, own_dtype, refuse_random, verdict
from pytest_probe.standards.tools.rules import COSINE, MAX_ABS, RuleVerdict, first
from pytest_probe.standards.tools.tool import Tool


class MindSpore(Tool):
    name = "mindspore"
    help = "the verdicts of msprobe's checker for MindSpore, bugs included"

    def judge(self, comparison: Comparison) -> OutputVerdict:
        refuse_random(comparison, counts_zeros=False)
        measures = in_float64(comparison, self.convention)
        if not measures.count:
            raise Unsupported(f"{comparison.name}: the tool compares no empty tensors", "no table judges it")
        return verdict(comparison, self.name, self.status(measures), measures)

    @staticmethod
    def convention(dtype: npt.DTypeLike, reference: npt.DTypeLike = "float64") -> Convention:
        return Convention(eps=1e-8, eps_at="zeros", cosine_offset=1e-8)

    @staticmethod
    def status(measures: Measures) -> RuleVerdict:
        """The Status of a row of the details file. NaN is never within, nor is a metric that cannot be had."""
        distance, largest = measures.cosine_distance, measures.max_abs_error
        if distance is None or largest is None:
            return RuleVerdict("error", "the tool has no metrics for it")
        return first(
            "" if 1 - distance > COSINE else f"cosine {1 - distance:.6g}, must be above {COSINE}",
            "" if largest < MAX_ABS else f"largest absolute error {largest:.3g}, must be below {MAX_ABS}",
        )


def in_float64(comparison: Comparison, convention: ConventionOf) -> Measures:
    """Integers and bool as numbers too, as the tools take them; the reference in the output's own dtype."""
    if is_float(comparison):
        return as_tool(comparison, convention, own_dtype)
    actual, expected = (np.asarray(side, np.float64) for side in (comparison.actual, comparison.expected))
    return measure(actual, expected, convention("float64", "float64"))
