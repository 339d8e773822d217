"""What a quantiser gave, taken for values and scales, and the verdict on it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytest_probe.check.outcome import Checked
from pytest_probe.errors import BrokenCall
from pytest_probe.model.case import Case
from pytest_probe.model.verdict import Verdict, conclusion
from pytest_probe.numerics.dtypes import PACKED, AnyArray, dtype_name, numpy_dtype, widen
from pytest_probe.standards.quantisers import quantiser
from pytest_probe.standards.quantisers.quantiser import Quantised, Wanted


def quantised(outputs: Sequence[object], wanted: Wanted) -> Quantised:
    """The outputs of one call, in their order. Bytes, which programs that know no narrower dtype have, are float4 pairs
    as values, and E8M0 as scales. Raises BrokenCall where they are no values and scales."""
    arrays = [value for value in outputs if isinstance(value, np.ndarray)]
    if len(arrays) not in (2, 3) or len(arrays) != len(outputs):
        found = [type(value).__name__ for value in outputs]
        raise BrokenCall(f"{len(found)} outputs ({', '.join(found)}), expected values, scales, and the scale of all")
    values, scales = (arrays[1], arrays[0]) if wanted.scales_first else arrays[:2]
    whole = float(widen(arrays[2]).reshape(-1)[0]) if len(arrays) > 2 else 1.0
    return Quantised(_as(values, PACKED), _as(scales, "float8_e8m0fnu"), whole)


def _as(array: AnyArray, dtype: str) -> AnyArray:
    return array.view(numpy_dtype(dtype)) if array.dtype == np.uint8 else array


def concluded(case: Case, numbers: AnyArray, draws: Sequence[Quantised] | BrokenCall, wanted: Wanted) -> Checked:
    """The verdict on what a quantiser made of numbers; an error where it gave no values and scales of its recipe."""
    try:
        if isinstance(draws, BrokenCall):
            raise draws
        outputs = quantiser.judge(numbers, draws, wanted)
    except BrokenCall as error:
        return Checked(case, Verdict("error", quantiser.NAME, f"the quantiser gave {error}"), cause=error)
    outcome, reason = conclusion(outputs)
    return Checked(case, Verdict(outcome, quantiser.NAME, reason, "", dtype_name(numbers.dtype), outputs))
