"""What a report draws of a case: its worst output, in little data.

Counts between powers of two, 48 points and a map of cells: 4 kB a case, computed while its tensors exist.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from msgspec.structs import replace

from pytest_probe.check.judging import argument_rows
from pytest_probe.check.outcome import Checked
from pytest_probe.errors import BrokenCall
from pytest_probe.model.details import OperandPlot, Plots, limit_share
from pytest_probe.model.scaled_product import operands
from pytest_probe.model.verdict import SEVERITY, ArgumentRow, OutputVerdict, Verdict
from pytest_probe.numerics.dtypes import AnyArray, is_complex, is_floating, is_packed, unpacked
from pytest_probe.numerics.error_plots import LEAST_OF_ALL, error_map, errors_of, histogram, points, sample
from pytest_probe.standards.tables import classes_of

# Numbers of an operand that are decoded, in float64, about: of a larger one evenly spaced rows.
_DECODED = 1 << 22


def arguments_of(checked: Checked) -> tuple[ArgumentRow, ...]:
    """The arguments of a case that ran."""
    return () if checked.worst is None else argument_rows(checked.worst.replay)


def operands_of(checked: Checked) -> tuple[OperandPlot, ...]:
    """The operands of a product of two scaled matrices, with their scales; none of any other case."""
    if checked.worst is None:
        return ()
    call = checked.worst.replay.reference.bound
    if "scaled_products" not in classes_of(call.name):
        return ()
    try:
        both = operands(call)
    except BrokenCall:
        return ()  # of groups, or numbers without scales
    plots = []
    for name, operand in zip(("input", "mat2"), both, strict=True):
        if operand.matrix.size:
            step = max(1, math.prod(operand.shape) // _DECODED)
            with np.errstate(all="ignore"):
                found = histogram(np.abs(operand.scaled_rows(step)), LEAST_OF_ALL)
            found = replace(found, step=step * found.step)
            plots.append(OperandPlot(call.paths[name], found, operand.blocks().words()))
    return tuple(plots)


def plots_of(checked: Checked, verdict: Verdict) -> Plots | None:
    """The plots of the worst output that both sides have; None where the case did not run, or gave no arrays of
    numbers."""
    sides = checked.worst
    if sides is None:
        return None
    found = [output for output in verdict.outputs if output.name in sides.actual and output.name in sides.expected]
    if not found:
        return None
    worst = max(found, key=lambda each: (SEVERITY[each.verdict], limit_share(each.metrics) or 0.0))
    actual, expected = _array(sides.actual[worst.name]), _array(sides.expected[worst.name])
    if actual is None or expected is None or actual.shape != expected.shape or not actual.size:
        return None
    with np.errstate(all="ignore"):
        taken = sample(actual, expected)
        errors = errors_of(*taken)
        measured = is_floating(actual.dtype) or is_complex(actual.dtype)
        return Plots(
            worst.name,
            worst.noise_ratios,
            histogram(errors) if measured else None,
            points(*taken, errors),
            error_map(actual, expected, _index_of_worst(worst, actual, errors)),
        )


def _index_of_worst(output: OutputVerdict, actual: AnyArray, errors: AnyArray) -> tuple[int, ...]:
    """Where the worst element is; of a sample the index in the whole tensor says nothing. errors: of evenly spaced
    elements."""
    if output.worst and output.shape == actual.shape:
        return output.worst[0].index
    place = int(np.argmax(errors))  # NaN is the largest of all
    step = max(1, -(-actual.size // errors.size))
    return tuple(map(int, np.unravel_index(min(place * step, actual.size - 1), actual.shape)))


def _array(value: Any) -> AnyArray | None:
    """Numbers, both of each pair, and truth values as an array; None for all else."""
    if isinstance(value, (bool, int, float, complex)):
        value = np.asarray(value)
    if not isinstance(value, np.ndarray):
        return None
    if is_packed(value):
        return unpacked(value)
    numeric = is_floating(value.dtype) or is_complex(value.dtype) or value.dtype.kind in "biu"
    return value if numeric else None
