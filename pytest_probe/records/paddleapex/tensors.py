"""A tensor of a PaddleAPEX dump, and how far its recorded range can be trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pytest_probe.model.dump import Number, TensorSpec
from pytest_probe.numerics.dtypes import float_format, is_complex, is_floating, numpy_dtype
from pytest_probe.records.fields import Fields

# What PaddleAPEX writes for Max and Min where Paddle's kernel raised.
_UNKNOWN = (1, 0)
# On Paddle 3 PaddleAPEX may take bfloat16 for the integers that its bits are, and round them up to a power of ten:
# from the least normal number on these are such.
_RAW = "BFLOAT16"
_LEAST_RAW, _LARGEST_RAW = 128, 100_000


def tensor(fields: Fields, value: Mapping[str, Any], field: str) -> TensorSpec:
    dtype = fields.dtype(value, "dtype", field)
    top, bottom = _range(value["dtype"], dtype, fields.number(value, "Max", field), fields.number(value, "Min", field))
    return TensorSpec(
        dtype,
        fields.tensor_shape(value, field),
        max=top,
        min=bottom,
        requires_grad=not fields.need(value, "stop_gradient", field, bool, "true or false"),
        data_name=fields.file_name(value, "real_data_path", field),
    )


def is_rounded(spec: TensorSpec) -> bool:
    """May the one number of an integer tensor be a power of ten in another's place?"""
    number = spec.max
    return number is None or number != spec.min or (abs(number) > 1 and math.log10(abs(number)).is_integer())


def _range(written: str, dtype: str, top: Number | None, bottom: Number | None) -> tuple[Number | None, Number | None]:
    """Max and Min where they say something, None for both where they don't. Rounded outward, they may lie beyond what
    the dtype holds."""
    if top is None or bottom is None or (top, bottom) == _UNKNOWN or is_complex(dtype):
        return None, None
    if written == _RAW and _is_raw(top, bottom):
        return None, None
    if is_floating(dtype):
        largest = float_format(numpy_dtype(dtype)).max
        return _within(top, largest), _within(bottom, largest)
    return top, bottom


def _is_raw(top: Number, bottom: Number) -> bool:
    whole = all(math.isfinite(number) and float(number).is_integer() for number in (top, bottom))
    return whole and 0 <= bottom <= top <= _LARGEST_RAW and top >= _LEAST_RAW


def _within(number: Number, largest: float) -> Number:
    return min(max(number, -largest), largest) if math.isfinite(number) else number
