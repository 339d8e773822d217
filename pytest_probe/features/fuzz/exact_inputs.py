"""Operators on exact inputs, by units of the last place: perturbed inputs excuse a naive range reduction, and a power
by logarithms; where the inputs are whole numbers, or halves, nothing was rounded before the call."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from pytest_probe.check.outcome import Checked
from pytest_probe.model.arguments import Leaf
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray, BoolArray, float_format, is_floating, widen
from pytest_probe.numerics.ulp import ulp_distance


def exact_elements(leaves: Mapping[str, Leaf], shape: tuple[int, ...]) -> BoolArray:
    """For which elements of an output of this shape are all floating tensors whole numbers, or halves? A tensor that
    does not broadcast to it, as an `out`, counts as a whole: for all elements, or for none."""
    found = np.ones(shape, bool)
    floats = [widen(leaf.array) for leaf in leaves.values() if is_floating(leaf.array.dtype)]
    with np.errstate(all="ignore"):
        for values in floats:
            exact = np.isfinite(values) & (2 * values == np.rint(2 * values))
            found &= exact if _broadcasts(values.shape, shape) else exact.all()
    return found


def _broadcasts(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, other) == other
    except ValueError:
        return False


def by_ulp(checked: Checked, limit: float) -> Checked:
    """The verdict on a forward that passed, with an error for each output that is more than `limit` units off. The
    operator works element by element."""
    sides = checked.worst
    if checked.verdict.verdict != "pass" or sides is None:
        return checked
    leaves = sides.replay.reference.leaves
    outputs = tuple(
        _judged(each, sides.actual.get(each.name), sides.expected.get(each.name), leaves, limit)
        for each in checked.verdict.outputs
    )
    wrong = next((each for each in outputs if each.verdict == "error"), None)
    if wrong is None:
        return checked
    verdict = replace(checked.verdict, verdict="error", reason=f"{wrong.name}: {wrong.reason}", outputs=outputs)
    return replace(checked, verdict=verdict)


def _judged(
    output: OutputVerdict,
    actual: AnyArray | None,
    expected: AnyArray | None,
    leaves: Mapping[str, Leaf],
    limit: float,
) -> OutputVerdict:
    if not isinstance(actual, np.ndarray) or expected is None or not is_floating(actual.dtype):
        return output
    exact = exact_elements(leaves, actual.shape)
    form, wide = float_format(actual.dtype), np.abs(widen(expected))
    # A device may flush smaller numbers, and larger ones overflow.
    usual = exact & (wide >= 2.0**form.min_exponent) & (wide <= form.max) & np.isfinite(widen(actual))
    off = float(ulp_distance(actual[usual], widen(expected)[usual], actual.dtype).max(initial=0.0))
    if off <= limit:
        return output
    reason = f"{off:.4g} ULP (limit {limit:.4g}) on inputs that are exact"
    return replace(output, verdict="error", standard="ulp", reason=reason)
