"""The metrics that a tool would have taken of an output, and the verdict that they lead to."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pytest_probe.errors import Unsupported
from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import Element, Metric, OutputVerdict
from pytest_probe.numerics import metrics
from pytest_probe.numerics.conventions import Convention
from pytest_probe.numerics.dtypes import WIDE_DTYPES, is_complex, is_floating, round_to
from pytest_probe.numerics.tool_metrics import Measures, applying, measure
from pytest_probe.standards.classes.random import draws
from pytest_probe.standards.exact import correctly_rounded, elements, identical
from pytest_probe.standards.tools.release import Release, Status
from pytest_probe.standards.tools.rules import RuleVerdict

NARROW = ("float16", "bfloat16")


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


def against_reference(comparison: Comparison, release: Release) -> Measures:
    """Against the reference in the dtype that the tool computes it in."""
    if not is_float(comparison):
        return _of_integers(comparison, release)
    reference = _reference(comparison, release.status)
    with np.errstate(over="ignore"):
        expected = comparison.expected
        if reference != "float64" and not is_complex(comparison.actual.dtype):
            expected = round_to(expected, reference)
        return measure(comparison.actual, expected, release.convention_of(comparison.actual.dtype, reference))


def _of_integers(comparison: Comparison, release: Release) -> Measures:
    """Integers and bool are numbers to the tools that compare them as floats."""
    if release.status.integers == "exact":
        return measure(comparison.actual, comparison.expected, Convention())
    actual, expected = (np.asarray(side, np.float64) for side in (comparison.actual, comparison.expected))
    return measure(actual, expected, release.convention_of("float64"))


def _reference(comparison: Comparison, how: Status) -> str:
    dtype = comparison.actual.dtype
    if how.reference == "own":
        return dtype.name
    if how.reference == "float32":
        return "float64" if dtype in WIDE_DTYPES else "float32"
    narrow = dtype.name in NARROW or comparison.case.narrow or comparison.call.name in how.float32_reference
    return "float32" if how.reference == "next" and narrow else "float64"


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
