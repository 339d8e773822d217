"""Indices that choose among the inputs: judged by what they point at, since equal values may trade places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from pytest_probe.numerics.dtypes import AnyArray, widen
from pytest_probe.standards.exact import Exact, alike
from pytest_probe.standards.question import Question
from pytest_probe.standards.verdict import OutputVerdict

# Where `dim` stands, and what it is by default; None: the whole tensor, flattened.
DIMENSIONS: Mapping[str, tuple[int, int | None]] = {
    "sort": (1, -1),
    "argsort": (1, -1),
    "topk": (2, -1),
    "kthvalue": (2, -1),
    "median": (1, None),
    "nanmedian": (1, None),
    "mode": (1, -1),
    "max": (1, None),
    "min": (1, None),
    "argmax": (1, None),
    "argmin": (1, None),
    "cummax": (1, None),
    "cummin": (1, None),
}
DISTINCT = frozenset({"sort", "argsort", "topk"})
# Of equal values the first, as torch's documentation has it; the others may take any.
FIRST = frozenset({"argmax", "argmin", "max", "min"})


class Selection:
    """Values exact. Indices: in range, distinct where they must be, and pointing at the reference's values; a warning
    where the framework promises the first of equal values and another was taken."""

    name = "selection"

    def judge(self, question: Question) -> OutputVerdict:
        if question.facts.name == "topk" and not question.argument(4, "sorted", True):
            question = _in_order(question)
        exact = Exact().judge(question)
        if exact.verdict == "pass" or not is_index(question) or question.kwargs.get("stable"):
            return exact
        trouble = self._trouble(question)
        shape, dtype = question.actual.shape, question.actual.dtype.name
        if trouble is None and question.facts.name in FIRST:
            other = "indices of equal values that are not the first"
            return OutputVerdict(question.name, shape, dtype, "warning", self.name, other, exact.metrics, exact.worst)
        if trouble is None:
            return OutputVerdict(question.name, shape, dtype, "pass", self.name, "", exact.metrics)
        return OutputVerdict(question.name, shape, dtype, "error", self.name, trouble, exact.metrics, exact.worst)

    def _trouble(self, question: Question) -> str | None:
        source = chosen_from(question)
        if source is None:
            return "indices differ from the reference's"
        values, dim, actual, expected = source
        extent = values.shape[dim]
        if actual.size and (actual.min() < 0 or actual.max() >= extent):
            return f"indices from {actual.min()} to {actual.max()} where 0 to {extent - 1} are there"
        if question.facts.name in DISTINCT and (np.diff(np.sort(actual, axis=dim), axis=dim) == 0).any():
            return "an index comes twice"
        chosen = np.take_along_axis(values, actual, dim)
        same = alike(chosen, np.take_along_axis(values, expected, dim))
        if same.all():
            return None
        return f"{int(np.count_nonzero(~same)):,} of {same.size:,} indices point at another value than the reference's"


def _in_order(question: Question) -> Question:
    """The question with both sides of an unsorted topk sorted: values by size, indices by the value they point at."""
    dim = question.argument(2, "dim", -1)
    values = question.argument(0, "input")

    def ordered(chosen: AnyArray) -> AnyArray:
        keys = np.take_along_axis(widen(values), chosen, dim) if is_index(question) else chosen
        return np.take_along_axis(chosen, np.argsort(widen(keys), axis=dim, kind="stable"), dim)

    return replace(question, actual=ordered(question.actual), expected=ordered(question.expected))


def is_index(question: Question) -> bool:
    """Is this output the indices? They come second, but for the arg- functions."""
    place = "output.0" if question.facts.name.startswith("arg") else "output.1"
    return question.name == place and question.actual.dtype.kind in "iu"


def chosen_from(question: Question) -> tuple[AnyArray, int, AnyArray, AnyArray] | None:
    """The tensor chosen from, the dimension, and both index arrays, all of one rank; None where they don't fit."""
    values = question.argument(0, "input")
    place = DIMENSIONS.get(question.facts.name)
    if place is None or not isinstance(values, np.ndarray):
        return None
    dim = question.argument(place[0], "dim", question.kwargs.get("axis", place[1]))
    actual, expected = question.actual, question.expected
    if dim is None:
        values, actual, expected, dim = values.reshape(-1), actual.reshape(-1), expected.reshape(-1), 0
    if not values.ndim:
        values, actual, expected, dim = values.reshape(1), actual.reshape(1), expected.reshape(1), 0
    if actual.ndim == values.ndim - 1:
        actual, expected = np.expand_dims(actual, dim), np.expand_dims(expected, dim)
    return (values, dim, actual, expected) if actual.ndim == values.ndim else None
