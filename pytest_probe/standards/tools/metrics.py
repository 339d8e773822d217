"""The metrics that a tool would have taken of an output, and the verdict that they lead to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pytest_probe.errors import Unsupported
from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import Element, Metric, OutputVerdict
from pytest_probe.numerics import metrics
from pytest_probe.numerics.conventions import Convention
from pytest_probe.numerics.dtypes import is_complex, is_floating, round_to
from pytest_probe.numerics.tool_metrics import Measures, applying, measure
from pytest_probe.standards.classes.random import draws
from pytest_probe.standards.exact import correctly_rounded, elements, identical
from pytest_probe.standards.tools.rules import RuleVerdict

NARROW = ("float16", "bfloat16")
# What a tool compares with: float64 all the time, or its own next precision, or the output's dtype.
# A tool's convention for an output's dtype and a reference's.
ConventionOf: TypeAlias = Callable[[npt.DTypeLike, npt.DTypeLike], Convention]
REFERENCE_IN_FLOAT32 = ("conv1d", "conv2d")


def is_float(comparison: Comparison) -> bool:
    return is_floating(comparison.actual.dtype) or is_complex(comparison.actual.dtype)


def refuse_random(comparison: Comparison, *, counts_zeros: bool = True) -> None:
    """Raises Unsupported where no reference has the one right answer. counts_zeros: the tool judges a dropout by its
    share of zeros."""
    kinds = comparison.classes & {"random", "uninitialised"}
    if kinds and not (is_dropout(comparison) and (counts_zeros or not draws(comparison))):
        raise Unsupported(f"{comparison.name}: no table judges what is {min(kinds)}", "no table judges it")


def is_dropout(comparison: Comparison) -> bool:
    return "dropout" in comparison.call.api


def in_convention(comparison: Comparison, rule: Convention) -> Measures:
    """Against the float64 reference."""
    return measure(comparison.actual, comparison.expected, rule)


def as_tool(comparison: Comparison, convention: ConventionOf, raised: Callable[[Comparison], str]) -> Measures:
    """Against the reference in the dtype that the tool computes it in."""
    if not is_float(comparison):
        return measure(comparison.actual, comparison.expected, Convention())
    reference = raised(comparison)
    rule = convention(comparison.actual.dtype, reference)
    with np.errstate(over="ignore"):
        return measure(comparison.actual, _rounded(comparison, reference), rule)


def _rounded(comparison: Comparison, reference: str) -> np.ndarray:
    if is_complex(comparison.actual.dtype) or reference == "float64":
        return comparison.expected
    return round_to(comparison.expected, reference)


def msprobe_reference(comparison: Comparison) -> str:
    """The next precision up, one for all: float32 where 16-bit tensors take part, and for convolutions."""
    if comparison.actual.dtype.name in NARROW or comparison.case.narrow or comparison.call.name in REFERENCE_IN_FLOAT32:
        return "float32"
    return "float64"


def own_dtype(comparison: Comparison) -> str:
    return comparison.actual.dtype.name


def verdict(
    comparison: Comparison,
    standard: str,
    found: RuleVerdict,
    measures: Measures,
    more: Mapping[str, Metric] | None = None,
) -> OutputVerdict:
    """With our own metrics first, and those that the rule saw."""
    taken: dict[str, Metric] = dict(metrics.describe(comparison.actual, comparison.expected))
    taken |= applying(measures)
    return OutputVerdict(
        comparison.name,
        comparison.actual.shape,
        comparison.actual.dtype.name,
        found.verdict,
        standard,
        found.reason,
        {**taken, **(more or {})},
        () if found.verdict == "pass" else differing(comparison),
    )


def differing(comparison: Comparison) -> tuple[Element, ...]:
    """The elements that are farthest off, of those that are not the correctly rounded reference."""
    return elements(
        comparison, ~identical(comparison.actual, correctly_rounded(comparison.expected, comparison.actual.dtype))
    )
