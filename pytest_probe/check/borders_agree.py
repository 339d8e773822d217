"""The borders that a user named: the reference with the places where a kernel ends and the next begins."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pytest_probe.check.both_sides import Reference, results
from pytest_probe.errors import NoReference
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.user_errors import no_reference

# What another order of the same float64 sums may lose, of an element and of the largest one: far below what 16 bit
# shows.
RELATIVE, OF_LARGEST = 1e-9, 1e-12
ADVICE = "in float64 it must give what the reference gives: change nothing but the places of border"


def check_outputs_of_borders(reference: Reference) -> None:
    """Raises NoReference where the borders' outputs in float64 are not those of the reference."""
    bordered = reference.with_borders()
    if bordered is None:
        return
    with no_reference("borders", advice=f"; {ADVICE}"):
        run = bordered.again(reference.leaves, reference.way, None)
    _check(results(run, reference.changed), results(reference.run, reference.changed), "")


def check_gradients_of_borders(bordered: Reference, reference: Reference, incoming: Mapping[str, AnyArray]) -> None:
    """Raises NoReference where the borders' gradients in float64 are not those of the reference."""
    with no_reference("borders", advice=f"; {ADVICE}"):
        found = _gradients(bordered, incoming)
    _check(found, _gradients(reference, incoming), "the gradient of ")


def _gradients(reference: Reference, incoming: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    """Of a run of their own: the graph of the first may be used up."""
    return reference.gradients_of(reference.leaves, reference.way, incoming)


def _check(found: Mapping[str, AnyArray], wanted: Mapping[str, AnyArray], what: str) -> None:
    """Raises NoReference where they differ: what runs with borders are off by excuses a function that is off by the
    same."""
    if found.keys() != wanted.keys():
        have, lacks = ", ".join(sorted(found)) or "nothing", ", ".join(sorted(wanted)) or "nothing"
        raise NoReference(f"borders gives {what}{have}, the reference {what}{lacks}; {ADVICE}")
    for name, array in wanted.items():
        shapes = list(np.shape(found[name])), list(np.shape(array))
        if shapes[0] != shapes[1]:
            raise NoReference(f"borders gives {what}{name} with shape {shapes[0]}, the reference {shapes[1]}; {ADVICE}")
        largest = float(np.max(np.abs(array), initial=0.0, where=np.isfinite(array)))
        if np.allclose(found[name], array, rtol=RELATIVE, atol=OF_LARGEST * largest, equal_nan=True):
            continue
        with np.errstate(invalid="ignore"):
            apart = np.abs(found[name] - array)
        most = f"they differ by up to {np.max(apart):.3g}, and the largest is {largest:.3g}"
        words = most if np.isfinite(apart).all() else "infinities or NaN in other places"
        raise NoReference(f"borders gives other numbers than the reference in {what}{name}: {words}; {ADVICE}")
