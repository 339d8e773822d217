"""Devices that take subnormal float32 numbers for zero, at any step or at none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.model.comparison import Assumption, Comparison, Evidence, RunKind
from pytest_probe.model.device_modes import Behaviour
from pytest_probe.numerics import allowed_scale, noise_ratio
from pytest_probe.numerics.dtypes import SMALLEST_FLOAT32, AnyArray, is_floating, widen
from pytest_probe.standards.noise.summed_terms import summed_terms

# What rounds to the smallest normal number may as well be below it.
_BORDER = 1.01


def of_flushing(comparison: Comparison, behaviour: Behaviour) -> Iterator[Comparison]:
    """The comparison to a device that may flush at any step, or at none: vectors and the rest of a loop differ.

    Of each element that reference counts which is nearest. What is subnormal in the arguments and in the output is
    zero, so that what was copied may stay, and equal zeros may trade places.
    """
    found = [comparison.evidence.alternative(comparison, Assumption(mode)) for mode in behaviour.variants]
    others = [other for other in found if other is not None]
    call = comparison.call.mapped(_zeroed)
    if comparison.actual.dtype.kind in "iub":
        # Without an emulation too: the zeroed arguments alone may explain a choice.
        emulated = replace(comparison, allowance=replace(comparison.allowance, emulated=True))
        yield from (other.of_call(call) for other in (*others, emulated))
        return
    values = [comparison.expected, *(other.expected for other in others)]
    # Zero and the subnormal number are both right there.
    small = np.minimum.reduce([np.abs(value) for value in values]) < SMALLEST_FLOAT32 * _BORDER
    actual = np.where(small, _zeroed(comparison.actual), comparison.actual)
    values.append(np.where(small, 0.0, comparison.expected))
    expected = allowed_scale.nearest_run(actual, values)
    evidence = _FlushedEvidence(comparison, others, values, expected)
    allowance = replace(comparison.allowance, emulated=True, lost=SMALLEST_FLOAT32)
    flushed = replace(comparison, actual=actual, expected=expected, evidence=evidence, allowance=allowance)
    yield flushed.of_call(call)


class _FlushedEvidence(Evidence, Struct, frozen=True):
    """Runs of the reference and of its emulations, each as far from `expected` as it is from its own reference. values
    are what the device may have come to."""

    comparison: Comparison
    others: Sequence[Comparison]
    values: list[AnyArray]
    expected: AnyArray

    def runs(self, kind: RunKind, count: int) -> list[AnyArray]:
        sides = (self.comparison, *self.others)
        made = [_moved(run, each.expected, self.expected) for each in sides for run in each.evidence.runs(kind, count)]
        if kind != "perturbed" or not count:
            return made
        # A sum loses terms below the smallest normal number on its way, though neither operands nor results tell. The
        # largest error that passes is that of all terms.
        terms = summed_terms(self.comparison).count
        lost = SMALLEST_FLOAT32 * min(1.0, terms / noise_ratio.LARGEST_LIMIT) if terms > 1 else 0.0
        return [*made, self.expected + lost]

    def cpu_result(self) -> AnyArray | None:
        """The CPU's kernel flushes nothing: it errs from the value that is nearest to its own."""
        own = self.comparison.evidence.cpu_result()
        if own is None:
            return None
        return _moved(widen(own), allowed_scale.nearest_run(own, self.values), self.expected)


def _moved(values: AnyArray, source: AnyArray, target: AnyArray) -> AnyArray:
    """Values as far from the target as they are from the source; what is not finite stays."""
    with np.errstate(invalid="ignore", over="ignore"):
        moved = target + (values - source)
    return np.asarray(np.where(np.isfinite(values) & np.isfinite(source), moved, values))


def _zeroed(value: Any) -> Any:
    """An array with zeros for subnormal numbers; anything else as it is."""
    if not isinstance(value, np.ndarray) or not is_floating(value.dtype):
        return value
    return np.where(np.abs(widen(value)) < SMALLEST_FLOAT32, np.zeros_like(value), value)
