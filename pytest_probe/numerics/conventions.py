"""What the tools of the field call small, close and a unit in the last place."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Convention(Struct, frozen=True, forbid_unknown_fields=True):
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
