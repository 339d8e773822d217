"""What msprobe and its kin take for small and for close, by dtype, as numeric conventions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from pytest_probe.numerics.conventions import Convention
from pytest_probe.numerics.dtypes import float_format, numpy_dtype


class DtypeLimits(NamedTuple):
    """Of one dtype, as Convention has them."""

    small_value: float
    small_atol: float
    absolute_atol: float
    rtol: float

    def rounded_to(self, dtype: str) -> DtypeLimits:
        scalar = numpy_dtype(dtype).type
        return DtypeLimits(*(float(scalar(limit)) for limit in self))


# msprobe's documentation of 1.0.4.
DOCUMENTED: Mapping[str, DtypeLimits] = {
    "float16": DtypeLimits(1e-3, 1e-5, 1e-5, 1e-3),
    "bfloat16": DtypeLimits(1e-3, 1e-5, 1e-5, 4e-3),
    "float32": DtypeLimits(1e-6, 1e-9, 1e-9, 1e-6),
}
# msprobe from 1.2.2 on. The three 1e-16 stand in the tool's code where its documentation has 2^-16.
LATER: Mapping[str, DtypeLimits] = {
    "float16": DtypeLimits(2.0**-10, 1e-16, 2.0**-16, 2.0**-10),
    "bfloat16": DtypeLimits(2.0**-10, 1e-16, 1e-16, 2.0**-8),
    "float32": DtypeLimits(2.0**-20, 2.0**-30, 2.0**-30, 2.0**-20),
}
_ACCUMULATIVE_BOUND = {"float16": 2.0**-8, "bfloat16": 2.0**-7, "float32": 2.0**-11}
_PRECISE = float(np.finfo(np.float64).eps)


def thresholds(
    limits: Mapping[str, DtypeLimits],
    dtype: npt.DTypeLike,
    reference: npt.DTypeLike = "float64",
    *,
    counts_ulp: bool = True,
) -> Convention:
    """From the reference's dtype the tools take the eps of their denominators and the precision of thresholds.

    Not imitated: where the tools' float32 arithmetic on 16-bit outputs overflows (squares of errors above 1e19, ULP of
    bfloat16 below 2^-120), they print inf or NaN.
    """
    name, form = float_format(dtype).name, float_format(reference)
    # A float64 output, or a complex one, is no concern of the tables; the newer tools take float32's for it.
    found = limits.get(name, limits["float32"])
    if form.name != "float64":
        # The tools compare in the reference's dtype, and NumPy rounds the threshold to it.
        found = found.rounded_to("float16" if (name, form.name) == ("float16", "float16") else "float32")
    return Convention(
        **found._asdict(),
        eps=2.0**-8 if name == "bfloat16" else 2 * form.roundoff,
        rmse_damping=1e-4,
        zero=_PRECISE,
        ulp="exponent" if counts_ulp and name != "float64" else None,
        ulp_threshold=32.0 if name == "float32" else 1.0,
        widens_bfloat16=True,
    )


def accumulative(base: Convention, dtype: npt.DTypeLike) -> Convention:
    """msprobe's accumulative rule: values up to 1 are small, and one bound is both tolerances."""
    bound = _ACCUMULATIVE_BOUND.get(float_format(dtype).name, _ACCUMULATIVE_BOUND["float32"])
    return replace(base, small_value=1.0, absolute_atol=bound, rtol=bound)
