"""What the tools of the field call small, close and a unit in the last place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from pytest_probe.numerics.dtypes import float_format, numpy_dtype


@dataclass(frozen=True, slots=True)
class Convention:
    """What a tool takes for small, for close and for a unit in the last place. Thresholds are absolute numbers in the
    output's own unit but where said otherwise.

    small_value: |expected| at most this, with both sides finite, is small; the other finite elements are normal. None:
    the tool knows no small values, all elements are normal, NaN and inf among them, and metrics of small values are
    None.
    small_atol: a small value's |actual - expected| beyond this is an error in small_value_error_ratio.
    absolute_atol: the same in abs_error_ratio (msprobe from 1.2.2 on has another threshold for each of the two).
    rtol: relative error beyond which an element counts in rel_error_ratio and inf_nan_error_ratio; both are None
    where it is.
    eps: what the denominators of relative errors have beside |expected|: everywhere, or only where expected is zero.
    rmse_damping: msprobe's c in sqrt(mean(err^2) * (N / (N - masked + c) + c)); 0 for the plain mean of what is left.
    zero: a side whose largest magnitude is at most this has no cosine.
    cosine_offset: what MindSpore's checker adds to numerator and denominator of the cosine; it is then never blank.
    alike: NaN beside NaN and inf beside the same inf are no error, one alone is an infinite one, and neither takes part
    in cosine and RMSE; inf_nan_error_ratio is then the share of those alone among all NaN and inf, whatever rtol is.
    Otherwise they spread as in plain arithmetic: the maximum and the cosine become NaN.
    ulp: "own", the spacing of the output's format at the reference; "exponent", the peers' 2^(floor(log2 |expected|) -
    mantissa bits), which takes zero for 1.0 (see tool_ulp.py); None for tools without.
    ulp_threshold: ULPs, beyond which an element counts in ulp_over_ratio.
    widens_bfloat16: the tool turns bfloat16 into float32 first, and float32 is what error balance and finiteness round
    the reference to.
    """

    small_value: float | None = None
    small_atol: float = 0.0
    absolute_atol: float = 0.0
    rtol: float | None = None
    eps: float = 0.0
    eps_at: Literal["all", "zeros"] = "all"
    rmse_damping: float = 0.0
    zero: float = 0.0
    cosine_offset: float = 0.0
    alike: bool = False
    ulp: Literal["own", "exponent"] | None = None
    ulp_threshold: float = 1.0
    widens_bfloat16: bool = False


# small_value, small_atol, absolute_atol, rtol of an output's dtype.
_Limits = tuple[float, float, float, float]
# The numbers stand in each tool's own code; they are compared with, not chosen.
_MSPROBE_1_0: dict[str, _Limits] = {
    "float16": (1e-3, 1e-5, 1e-5, 1e-3),
    "bfloat16": (1e-3, 1e-5, 1e-5, 4e-3),
    "float32": (1e-6, 1e-9, 1e-9, 1e-6),
}
# The three 1e-16 stand in the tool's code where its documentation has 2^-16.
_MSPROBE_26: dict[str, _Limits] = {
    "float16": (2.0**-10, 1e-16, 2.0**-16, 2.0**-10),
    "bfloat16": (2.0**-10, 1e-16, 1e-16, 2.0**-8),
    "float32": (2.0**-20, 2.0**-30, 2.0**-30, 2.0**-20),
}
_PADDLEAPEX: dict[str, _Limits] = {
    "float16": (1e-3, 1e-5, 1e-3, 1e-3),
    "bfloat16": (1e-3, 1e-5, 1e-3, 4e-3),
    "float32": (1e-6, 1e-9, 1e-6, 1e-6),
}
_LIMITS = {
    "msprobe-1.0": _MSPROBE_1_0,
    "msprobe-8": _MSPROBE_26,
    "msprobe-26": _MSPROBE_26,
    "paddleapex": _PADDLEAPEX,
}
# Absolute up to 1 and relative above: msprobe's accumulative standard.
_ACCUMULATIVE_BOUND = {"float16": 2.0**-8, "bfloat16": 2.0**-7, "float32": 2.0**-11}
# The largest magnitude that msprobe and PaddleAPEX take for a vector of zeros, which has no cosine.
_PRECISE = float(np.finfo(np.float64).eps)
FAMILIES = ("own", *_LIMITS, "mindspore", "ptdbg")


def convention(family: str, dtype: npt.DTypeLike, reference: npt.DTypeLike = "float64") -> Convention:
    """The convention of a family of tools for outputs of a floating or complex dtype, compared with a reference of
    another: from the reference's dtype the tools take the eps of their denominators and the precision of thresholds.

    Not imitated: where the tools' float32 arithmetic on 16-bit outputs overflows (squares of errors above 1e19, ULP of
    bfloat16 below 2^-120), they print inf or NaN.

    Families: own (NaN and inf by likeness, fractional ULP, nothing small), msprobe-1.0, msprobe-8 and
    msprobe-26 (alike, for 1.2.2 to 26.2), paddleapex, mindspore (msprobe's checker for MindSpore), ptdbg. Raises
    ValueError on any other.
    """
    name, form = float_format(dtype).name, float_format(reference)
    if family == "own":
        return Convention(alike=True, ulp="own", ulp_threshold=32.0 if name == "float32" else 1.0)
    if family == "mindspore":
        return Convention(eps=1e-8, eps_at="zeros", cosine_offset=1e-8)
    if family == "ptdbg":
        return Convention(eps=2 * form.roundoff, eps_at="zeros", alike=True)
    if family not in _LIMITS:
        raise ValueError(f"no convention {family!r}; known: {', '.join(FAMILIES)}")
    return _thresholds(family, name, form.name)


def _thresholds(family: str, name: str, reference: str) -> Convention:
    table = _LIMITS[family]
    # A float64 output, or a complex one, is no concern of the tables; the newer tools take float32's for it.
    limits = table.get(name, table["float32"])
    if reference != "float64":
        # The tools compare in the reference's dtype, and NumPy rounds the threshold to it.
        working = numpy_dtype("float16" if (name, reference) == ("float16", "float16") else "float32")
        limits = tuple(float(working.type(limit)) for limit in limits)  # type: ignore[assignment]
    small_value, small_atol, absolute_atol, rtol = limits
    narrow = name == "bfloat16"
    return Convention(
        small_value=small_value,
        small_atol=small_atol,
        absolute_atol=absolute_atol,
        rtol=rtol,
        eps=2.0**-8 if narrow else 2 * float_format(reference).roundoff,
        rmse_damping=1e-4,
        zero=_PRECISE,
        ulp=None if family == "paddleapex" or name == "float64" else "exponent",
        ulp_threshold=32.0 if name == "float32" else 1.0,
        widens_bfloat16=True,
    )


def accumulative(base: Convention, dtype: npt.DTypeLike) -> Convention:
    """msprobe's accumulative standard: values up to 1 are small, and one bound is both tolerances."""
    bound = _ACCUMULATIVE_BOUND.get(float_format(dtype).name, _ACCUMULATIVE_BOUND["float32"])
    return replace(base, small_value=1.0, absolute_atol=bound, rtol=bound)
