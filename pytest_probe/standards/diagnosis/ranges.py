"""Errors that hang on a value: wrong wherever an argument, or the result, lies above or below a number."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pytest_probe.numerics.dtypes import BoolArray, Float64Array
from pytest_probe.standards.diagnosis.trouble import ENOUGH, Cause, Trouble

# Of the elements on the wrong side, what must be wrong; of the wrong ones, what must lie there.
PURE, HELD = 0.8, 0.97
# Of all elements, what may be wrong.
MOST = 0.5


class ValueRange:
    def explain(self, trouble: Trouble) -> Cause | None:
        # What is wrong nearly everywhere is right by chance elsewhere.
        where = (
            separating(trouble, trouble.wrong)
            if not trouble.confined and trouble.count <= MOST * trouble.wrong.size
            else ""
        )
        return Cause("range", f"wrong wherever {where}, right elsewhere") if where else None


def separating(trouble: Trouble, chosen: BoolArray) -> str:
    """The side of a number that nearly all chosen elements lie on, and few others, "input is below -3"; "" for none."""
    count = int(np.count_nonzero(chosen))
    if count < ENOUGH or chosen.size - count < ENOUGH:
        return ""
    for name, values in _keys(trouble):
        words = _threshold(values.ravel(), chosen.ravel())
        if words:
            return f"{name} is {words}"
    return ""


def _keys(trouble: Trouble) -> Iterator[tuple[str, Float64Array]]:
    alike = [(name, values) for name, values in trouble.inputs() if values.shape == trouble.wrong.shape]
    for name, values in alike:
        yield name, values
        yield f"|{name}|", np.abs(values)
    if len(alike) > 1:
        (first, left), (second, right) = alike[:2]
        yield f"{first} - {second}", left - right
        yield f"|{first} - {second}|", np.abs(left - right)
    yield "the expected value", trouble.expected
    yield "the expected magnitude", np.abs(trouble.expected)


def _threshold(values: Float64Array, wrong: BoolArray) -> str:
    """ "above 3", "below -15"; "" where no number separates."""
    order = np.argsort(values, kind="stable")
    values, wrong = values[order], wrong[order]
    total = int(np.count_nonzero(wrong))
    for side in ("above", "below"):
        found = wrong[::-1] if side == "above" else wrong
        # The shortest end that holds nearly all of the wrong ones.
        length = int(np.searchsorted(np.cumsum(found), np.ceil(HELD * total))) + 1
        ordered = values[::-1] if side == "above" else values
        length += int(np.argmax(np.append(ordered[length:] != ordered[length - 1], True)))
        if found.size - length < ENOUGH or total < PURE * length * HELD:
            continue
        inside, outside = found[:length], found[length:]
        if np.count_nonzero(inside) < PURE * length or np.count_nonzero(outside) > (1 - PURE) * outside.size:
            continue
        border = found.size - length if side == "above" else length
        low, high = float(values[border - 1]), float(values[border])
        return f"{side} {(low + high) / 2:.3g}"
    return ""
