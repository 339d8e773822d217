"""Elements written to places that an index names: where it names one twice, any of the values may have come last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.standards.exact import Exact, alike, correctly_rounded
from pytest_probe.standards.question import Question
from pytest_probe.standards.verdict import OutputVerdict

# Flat places, and the value written to each.
Written: TypeAlias = "tuple[AnyArray, AnyArray]"


class Writes:
    """Bit for bit; where several values go to one place, any of them."""

    name = "exact"

    def judge(self, question: Question) -> OutputVerdict:
        plain = Exact().judge(question)
        written = _written(question) if plain.verdict == "error" else None
        if written is None:
            return plain
        places, values = written
        repeated = np.bincount(places, minlength=question.actual.size) > 1
        wanted = correctly_rounded(question.expected, question.actual.dtype).ravel().copy()
        actual = question.actual.ravel()
        values = np.broadcast_to(values, places.shape).astype(actual.dtype)
        given = repeated[places] & alike(actual[places], values)
        wanted[places[given]] = values[given]
        verdict = Exact().judge(replace(question, expected=wanted.reshape(question.expected.shape)))
        return verdict if verdict.verdict == "pass" else plain


def _written(question: Question) -> Written | None:
    try:
        return WRITERS[question.facts.name](question)
    except (IndexError, TypeError, ValueError):
        return None  # not called as the table has it


def _flat(question: Question) -> AnyArray:
    return np.arange(question.actual.size).reshape(question.actual.shape)


def _scatter(question: Question) -> Written | None:
    dim, index = question.argument(1, "dim"), question.argument(2, "index")
    source = question.argument(3, "src", question.kwargs.get("value"))
    if not isinstance(index, np.ndarray) or source is None:
        return None
    places = list(np.indices(index.shape))
    places[dim] = index
    values = source[tuple(map(slice, index.shape))] if isinstance(source, np.ndarray) else np.asarray(source)
    flat = _flat(question)[tuple(places)].ravel()
    return flat, values.ravel() if values.ndim else values


def _index_copy(question: Question) -> Written | None:
    dim, index, source = question.argument(1, "dim"), question.argument(2, "index"), question.argument(3, "source")
    return np.take(_flat(question), index, axis=dim).ravel(), source.ravel()


def _index_put(question: Question) -> Written | None:
    indices = tuple(slice(None) if index is None else index for index in question.argument(1, "indices"))
    return _at(question, indices, question.argument(2, "values"))


def _setitem(question: Question) -> Written | None:
    return _at(question, question.argument(1, "key"), question.argument(2, "value"))


def _at(question: Question, key: Any, values: Any) -> Written | None:
    places = _flat(question)[tuple(key) if isinstance(key, list) else key]
    return places.ravel(), np.broadcast_to(values, places.shape).ravel()


def _put(question: Question) -> Written | None:
    index = question.argument(1, "index").ravel()
    return index % max(question.actual.size, 1), question.argument(2, "source").ravel()


WRITERS: Mapping[str, Callable[[Question], Written | None]] = {
    "scatter": _scatter,
    "index_copy": _index_copy,
    "index_put": _index_put,
    "setitem": _setitem,
    "put": _put,
}
