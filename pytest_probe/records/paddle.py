"""What the formats of Paddle share: how they name dtypes, and which of their APIs have no gradient."""

from __future__ import annotations

import re
from typing import Any

from pytest_probe.model.dump import DtypeSpec, Frame
from pytest_probe.records.fields import DUMP_DTYPES

# Paddle 2 has short names (FP32) where Paddle 3 has NumPy's (FLOAT32).
_SHORT = re.compile(r"(b?)fp(\d+)")
_LONG = {"bf16": "bfloat16"}


def bare_dtype(text: str) -> str:
    """The name of a dtype as NumPy and ml_dtypes have it, where there is one: float32 of FP32, FLOAT32,
    paddle.float32 and VarType.FP32."""
    name = text.rpartition(".")[2].lower().rstrip("_")  # NumPy writes bool_
    return _LONG.get(name) or _SHORT.sub(r"\1float\2", name)


def text_or_dtype(text: str) -> str | DtypeSpec:
    """A text argument; as a dtype where it names one, since Paddle accepts names for dtypes."""
    name = text.removeprefix("paddle.")
    return DtypeSpec(name) if name in DUMP_DTYPES else text


# Paddle's tools record no outputs, which would show it: APIs whose results are booleans, integers, shapes, Python
# numbers or constants, by the last part of the name. APIs that are missing here are run, and fail at the backward.
_NO_GRADIENT = frozenset(
    "equal not_equal less less_than less_equal greater greater_than greater_equal equal_all allclose isclose "
    "logical_and logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_invert "
    "isnan isinf isfinite isneginf isposinf isreal isin is_empty is_tensor is_complex is_floating_point is_integer "
    "argmax argmin argsort searchsorted bucketize nonzero count_nonzero any all numel shape rank matrix_rank signbit "
    "unique unique_consecutive floor_divide __floordiv__ nextafter standard_gamma poisson binomial "
    "nms matrix_nms generate_proposals distribute_fpn_proposals histogram_bin_edges histogram histogramdd bincount "
    "item tolist numpy dim ndimension size element_size detach "
    "zeros_like ones_like full_like empty_like rand_like randn_like randint_like bernoulli multinomial "
    "__eq__ __ne__ __lt__ __le__ __gt__ __ge__ __bool__ __nonzero__ __int__ __float__ __index__ __len__ "
    "__setitem__".split()
)
_CASTS = ("astype", "cast", "to")
# An argument that names an integer dtype; a tensor's own dtype is written differently.
_NO_FLOAT = re.compile(rb'["(.](?:u?int\d*|bool_?)["\s)]')


def has_gradient(api: str, entry: Any) -> bool:
    """May a call of this API with a floating argument have a gradient? entry is the bytes that describe the call."""
    name = api.rpartition(".")[2]
    return name not in _NO_GRADIENT and not (name in _CASTS and bool(_NO_FLOAT.search(entry)))


def no_frames(entry: str) -> tuple[Frame, ...]:
    """The frames of a call in a format without stacks."""
    return ()
