"""Ways to make an output wrong, each large enough that nobody would call it rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from pytest_probe.numerics.dtypes import AnyArray, float_format, widen

Mutation: TypeAlias = Callable[[AnyArray, np.random.Generator], AnyArray]


def sizes(dtype: np.dtype[Any]) -> tuple[float, float]:
    """Relative size of an error in one element, and in all: 1 % and 0.1 %, in 16 bit 8 and 4 roundoffs of the dtype."""
    roundoff = float_format(dtype).roundoff
    return max(0.01, 8 * roundoff), max(0.001, 4 * roundoff)


def one_element(output: AnyArray, random: np.random.Generator) -> AnyArray:
    """The element nearest to the median magnitude of the non-zero ones, off by 1 %."""
    flat = widen(output).ravel().copy()
    places = np.flatnonzero(flat)
    place = places[np.argsort(np.abs(flat[places]))[len(places) // 2]]
    flat[place] *= 1 + sizes(output.dtype)[0]
    return flat.reshape(output.shape)


def scale(output: AnyArray, random: np.random.Generator) -> AnyArray:
    return widen(output) * (1 + sizes(output.dtype)[1])


def noise(output: AnyArray, random: np.random.Generator) -> AnyArray:
    return widen(output) * (1 + sizes(output.dtype)[1] * random.standard_normal(output.shape))


def unwritten_row(output: AnyArray, random: np.random.Generator) -> AnyArray:
    changed = np.array(widen(output))
    changed[-1] = 0
    return changed


def stale_row(output: AnyArray, random: np.random.Generator) -> AnyArray:
    changed = np.array(widen(output))
    changed[-1] = changed[-2]
    return changed


def shifted(output: AnyArray, random: np.random.Generator) -> AnyArray:
    return np.roll(widen(output), 1)


MUTATIONS: Mapping[str, Mutation] = {
    "one element": one_element,
    "scale": scale,
    "noise": noise,
    "unwritten row": unwritten_row,
    "stale row": stale_row,
    "shifted": shifted,
}


def mutants(output: AnyArray, seed: int) -> Iterator[tuple[str, AnyArray]]:
    """Each mutation of an output that changes it, in its dtype. Outputs without finite non-zero numbers have none."""
    if not output.size or not np.isfinite(widen(output)).all() or not np.count_nonzero(output):
        return
    for name, mutate in MUTATIONS.items():
        if "row" in name and (not output.ndim or len(output) < 2):
            continue
        with np.errstate(all="ignore"):
            changed = mutate(output, np.random.default_rng(seed)).astype(output.dtype)
        if not np.array_equal(widen(changed), widen(output)):
            yield name, changed
