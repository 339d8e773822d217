"""Indices that choose among the inputs, as of argmax, topk and sort. They are judged by the values that they point at:
equal values are interchangeable."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray, widen
from pytest_probe.standards.exact import Exact, identical


class SelectionStandard:
    """Values exact. Indices: in range, distinct where they must be, and pointing at the reference's values. A note
    says so where the framework promises the first of equal values and the device gave another."""

    name = "selection"

    def judge(self, comparison: Comparison) -> OutputVerdict:
        if comparison.call.argument("sorted") is False and comparison.actual.ndim:
            # Both sides of an unsorted choice are sorted: values by size, indices by what they point at.
            dim, values = comparison.call.argument("dim"), comparison.call.argument("input")
            by_value = is_index(comparison)

            def ordered(chosen: AnyArray) -> AnyArray:
                keys = np.take_along_axis(widen(values), chosen, dim) if by_value else chosen
                return np.take_along_axis(chosen, np.argsort(widen(keys), axis=dim, kind="stable"), dim)

            actual, expected = ordered(comparison.actual), ordered(comparison.expected)
            comparison = replace(comparison, actual=actual, expected=expected)
        exact = Exact().judge(comparison)
        # A stable order allows no choice among equal values.
        if exact.verdict == "pass" or not is_index(comparison) or comparison.call.argument("stable"):
            return exact
        reason = self._failure_reason(comparison)
        shape, dtype = comparison.actual.shape, comparison.actual.dtype.name
        if reason is None:
            first = "first_of_equals" in comparison.classes
            note = "indices of equal values that are not the first" if first else ""
            return OutputVerdict(comparison.name, shape, dtype, "pass", self.name, note, exact.metrics)
        return OutputVerdict(comparison.name, shape, dtype, "error", self.name, reason, exact.metrics, exact.worst)

    def _failure_reason(self, comparison: Comparison) -> str | None:
        source = chosen_from(comparison)
        if source is None:
            return "indices differ from the reference's"
        values, dim, actual, expected = source
        extent = values.shape[dim]
        if actual.size and (actual.min() < 0 or actual.max() >= extent):
            return f"indices from {actual.min()} to {actual.max()} expected 0 to {extent - 1}"
        if "distinct_indices" in comparison.classes and occurs_twice(actual, dim):
            return "an index occurs twice"
        chosen = np.take_along_axis(values, actual, dim)
        same = identical(chosen, np.take_along_axis(values, expected, dim))
        if same.all():
            return None
        return f"{int(np.count_nonzero(~same)):,} of {same.size:,} indices point at another value than the reference's"


def is_index(comparison: Comparison) -> bool:
    """Is this output the indices? They are the second output, or the first of an API without values."""
    place = "output.0" if "only_indices" in comparison.classes else "output.1"
    return comparison.name == place and comparison.actual.dtype.kind in "iu"


def chosen_from(comparison: Comparison) -> tuple[AnyArray, int, AnyArray, AnyArray] | None:
    """The tensor chosen from, the dimension, and both index arrays, all of one rank; None where they don't fit."""
    values = comparison.call.argument("input")
    if not isinstance(values, np.ndarray):
        return None
    return along_one_rank(values, comparison.call.argument("dim"), comparison.actual, comparison.expected)


def occurs_twice(indices: AnyArray, dim: int) -> bool:
    """Does a row along dim name an element twice?"""
    return bool((np.diff(np.sort(indices, axis=dim), axis=dim) == 0).any())


def along_one_rank(
    values: AnyArray, dim: int | None, actual: AnyArray, expected: AnyArray
) -> tuple[AnyArray, int, AnyArray, AnyArray] | None:
    """The same for any tensor and a dimension of it; None for the flattened tensor."""
    if dim is None:
        values, actual, expected, dim = values.reshape(-1), actual.reshape(-1), expected.reshape(-1), 0
    if not values.ndim:
        values, actual, expected, dim = values.reshape(1), actual.reshape(1), expected.reshape(1), 0
    if actual.ndim == values.ndim - 1:
        actual, expected = np.expand_dims(actual, dim), np.expand_dims(expected, dim)
    return (values, dim, actual, expected) if actual.ndim == values.ndim else None
