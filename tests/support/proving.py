"""Proves what classes.yaml says of an API: what the default standard was asked, and what it says of other outputs."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray, float_format, widen
from pytest_probe.standards import STANDARDS


class Asking(Struct):
    """The default standard, which keeps what it was asked."""

    name: str = "asking"
    asked: list[tuple[Comparison, OutputVerdict]] | None = None

    def judge(self, comparison: Comparison) -> OutputVerdict:
        verdict = STANDARDS["auto"].judge(comparison)
        if self.asked is not None:
            self.asked.append((comparison, verdict))
        # An error of one reading has the other one asked.
        return verdict if verdict.verdict == "error" else replace(verdict, verdict="pass")


def judged(comparison: Comparison, actual: AnyArray) -> str:
    """The verdict where the device's output were another."""
    forward, case = comparison.case.forward, comparison.case
    if comparison.direction == "forward":
        case = replace(case, forward={**forward, comparison.name: actual})
    return STANDARDS["auto"].judge(replace(comparison, actual=actual, case=case)).verdict


def spoiled(array: AnyArray) -> AnyArray:
    """The array with one element off: a float by a percent or 16 roundoffs, the largest in magnitude."""
    flat = array.reshape(-1).copy()
    if array.dtype.kind == "b":
        flat[0] = ~flat[0]
    elif array.dtype.kind in "iu":
        flat[0] += 1
    else:
        place = int(np.nanargmax(np.where(np.isfinite(widen(flat)), np.abs(widen(flat)), -1)))
        by = max(0.01, 16 * float_format(array.dtype).roundoff)
        flat[place] = flat[place] * (1 + by) if flat[place] else 1
    return flat.reshape(array.shape)
