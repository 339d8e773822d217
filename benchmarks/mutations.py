"""Ways to make an output wrong, each large enough that nobody would call it rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from msgspec.structs import replace

from pytest_probe.model.comparison import Comparison
from pytest_probe.numerics.dtypes import AnyArray, BoolArray, float_format, is_complex, is_floating, round_to, widen
from pytest_probe.standards.classes.factorisation import UNORDERED
from pytest_probe.standards.classes.selected_indices import chosen_from, is_index

Mutation: TypeAlias = Callable[[AnyArray, np.random.Generator], AnyArray]


def sizes(dtype: np.dtype[Any]) -> tuple[float, float]:
    """Relative size of an error in one element, and in all: 1 % and 0.1 %, in 16 bit 8 and 4 roundoffs of the dtype."""
    roundoff = float_format(dtype).roundoff
    return max(0.01, 8 * roundoff), max(0.001, 4 * roundoff)


def one_element(output: AnyArray, random: np.random.Generator) -> AnyArray:
    """The element nearest to the median magnitude of the finite non-zero ones, off by 1 %."""
    flat = widen(output).ravel().copy()
    places = np.flatnonzero((flat != 0) & np.isfinite(flat))
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


def one_integer(output: AnyArray, random: np.random.Generator) -> AnyArray:
    """The element in the middle: the next integer, the other truth value."""
    flat = output.ravel().copy()
    flat[flat.size // 2] = ~flat[flat.size // 2] if flat.dtype.kind == "b" else flat[flat.size // 2] + 1
    return flat.reshape(output.shape)


MUTATIONS: Mapping[str, Mutation] = {
    "one element": one_element,
    "scale": scale,
    "noise": noise,
    "unwritten row": unwritten_row,
    "stale row": stale_row,
    "shifted": shifted,
}
OF_INTEGERS: Mapping[str, Mutation] = {**MUTATIONS, "one element": one_integer}
RELATIVE = ("scale", "noise")


def mutants(comparison: Comparison, seed: int, least: float = 0.0) -> Iterator[tuple[str, AnyArray]]:
    """Each mutation of an output that makes it wrong, in its dtype.

    Left out are those that no judge could find, since they leave a right answer: memory as it was found, nothing but
    zeros, inf and NaN, a change that rounding undoes, or that stays within twice the error that each element has
    anyway (where cancellation left only rounding errors, 1 % more of them is nothing) or within `least`, what a device
    loses that flushes sums to zero, eigenvalues in another order, and indices that point at values equal to the right
    ones.
    """
    output = comparison.actual
    if "uninitialised" in comparison.classes or not output.size:
        return
    floating = is_floating(output.dtype) or is_complex(output.dtype)
    if floating and not (np.isfinite(widen(output)) & (output != 0)).any():
        return
    for name, mutate in (MUTATIONS if floating else OF_INTEGERS).items():
        if ("row" in name and (not output.ndim or len(output) < 2)) or (name in RELATIVE and not floating):
            continue
        if name == "shifted" and comparison.call.name in UNORDERED and output.ndim == 1:
            continue
        changed = _mutated(mutate, output, np.random.default_rng(seed))
        if _is_wrong(comparison, changed, least):
            yield name, changed


def instead(comparison: Comparison, changed: AnyArray) -> Comparison:
    """The comparison where the device gave that."""
    case = comparison.case
    if comparison.direction == "forward":
        case = replace(case, forward={**case.forward, comparison.name: changed})
    return replace(comparison, actual=changed, case=case)


def _mutated(mutate: Mutation, output: AnyArray, random: np.random.Generator) -> AnyArray:
    with np.errstate(all="ignore"):
        return mutate(output, random).astype(output.dtype)


def _is_wrong(comparison: Comparison, changed: AnyArray, least: float) -> bool:
    output = comparison.actual
    moved = np.asarray((changed != output) & ~((changed != changed) & (output != output)))
    if output.dtype.kind in "iub":
        return bool(moved.any()) and not _points_alike(comparison, changed)
    with np.errstate(invalid="ignore", over="ignore"):
        before, after = (np.abs(widen(value) - comparison.expected) for value in (output, changed))
        rounding = np.abs(widen(round_to(comparison.expected, output.dtype)) - comparison.expected)
        worse: BoolArray = moved & ~(after <= np.maximum(2 * np.maximum(before, rounding), least))
    return bool(worse.any())


def _points_alike(comparison: Comparison, changed: AnyArray) -> bool:
    """Do the changed indices choose the very same values? Where each may come once only, they do not."""
    if "selection" not in comparison.classes or not is_index(comparison) or "distinct_indices" in comparison.classes:
        return False
    found = chosen_from(replace(comparison, expected=changed))
    if found is None:
        return False
    values, dim, right, other = found
    if other.min() < 0 or other.max() >= values.shape[dim]:
        return False
    chosen = [np.take_along_axis(values, index, dim) for index in (right, other)]
    return bool((chosen[0] == chosen[1]).all())
