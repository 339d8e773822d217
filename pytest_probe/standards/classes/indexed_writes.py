"""Elements written to places that an index names. If it names a place twice, any of its values may be written last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from msgspec.structs import replace

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.standards.exact import Exact, correctly_rounded, identical
from pytest_probe.standards.tables import details

# Flat places, and the value for each.
_PlacedValues: TypeAlias = "tuple[AnyArray, AnyArray]"


class Writes:
    """Bit for bit; any of several values for the same place."""

    name = "exact"

    def judge(self, comparison: Comparison) -> OutputVerdict:
        plain = Exact().judge(comparison)
        writer = _WRITERS.get(next(iter(details(comparison.classes, "written_places")), ""))
        try:
            written = writer(comparison) if plain.verdict == "error" and writer is not None else None
        except (IndexError, TypeError, ValueError):
            return plain  # not called as the table has it
        if written is None:
            return plain
        places, values = written
        repeated = np.bincount(places, minlength=comparison.actual.size) > 1
        wanted = correctly_rounded(comparison.expected, comparison.actual.dtype).ravel().copy()
        actual = comparison.actual.ravel()
        values = np.broadcast_to(values, places.shape).astype(actual.dtype)
        # Only a place with several values may differ from the reference.
        given = repeated[places] & identical(actual[places], values)
        wanted[places[given]] = values[given]
        verdict = Exact().judge(replace(comparison, expected=wanted.reshape(comparison.expected.shape)))
        return verdict if verdict.verdict == "pass" else plain


def _flat(comparison: Comparison) -> AnyArray:
    return np.arange(comparison.actual.size).reshape(comparison.actual.shape)


def _elements(comparison: Comparison) -> _PlacedValues | None:
    """An index of each element along a dimension."""
    dim, index, source = map(comparison.call.argument, ("dim", "index", "source"))
    if not isinstance(index, np.ndarray) or source is None:
        return None
    places = list(np.indices(index.shape))
    places[dim] = index
    values = source[tuple(map(slice, index.shape))] if isinstance(source, np.ndarray) else np.asarray(source)
    flat = _flat(comparison)[tuple(places)].ravel()
    return flat, values.ravel() if values.ndim else values


def _slices(comparison: Comparison) -> _PlacedValues | None:
    """An index of whole slices along a dimension."""
    dim, index, source = map(comparison.call.argument, ("dim", "index", "source"))
    return np.take(_flat(comparison), index, axis=dim).ravel(), source.ravel()


def _indices(comparison: Comparison) -> _PlacedValues | None:
    """An index a dimension, None for all of it."""
    indices = tuple(slice(None) if index is None else index for index in comparison.call.argument("index"))
    return _at(comparison, indices)


def _subscript(comparison: Comparison) -> _PlacedValues | None:
    key = comparison.call.argument("index")
    return _at(comparison, tuple(key) if isinstance(key, list) else key)


def _at(comparison: Comparison, key: Any) -> _PlacedValues | None:
    places = _flat(comparison)[key]
    return places.ravel(), np.broadcast_to(comparison.call.argument("values"), places.shape).ravel()


def _flattened(comparison: Comparison) -> _PlacedValues | None:
    index = comparison.call.argument("index").ravel()
    return index % max(comparison.actual.size, 1), comparison.call.argument("source").ravel()


_WRITERS: Mapping[str, Callable[[Comparison], _PlacedValues | None]] = {
    "elements": _elements,
    "slices": _slices,
    "indices": _indices,
    "subscript": _subscript,
    "flat": _flattened,
}
