"""A tensor of a dump: dtype, shape and statistics, with what our own capture adds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pytest_probe.model.dump import TensorSpec
from pytest_probe.records.fields import Fields, finite, quoted


def tensor(fields: Fields, value: Mapping[str, Any], field: str) -> TensorSpec:
    high, low = (fields.number(value, f"{key}_except_inf_nan", field) for key in ("Max", "Min"))
    top, bottom = (fields.number(value, key, field) for key in ("Max", "Min"))
    # Two versions of msprobe: Max may be of all elements or of the finite ones, and the other has the longer name.
    if "Max_origin" in value or "Min_origin" in value:
        high, low = top, bottom
        top = fields.number(value, "Max_origin", field)
        bottom = fields.number(value, "Min_origin", field)
    grad = False
    if value.get("requires_grad") is not None:
        grad = fields.need(value, "requires_grad", field, bool, "true or false")
    return TensorSpec(
        fields.dtype(value, "dtype", field),
        fields.tensor_shape(value, field),
        max=top,
        min=bottom,
        mean=fields.real(value, "Mean", field),
        norm=fields.real(value, "Norm", field),
        high=finite(high),
        low=finite(low),
        requires_grad=grad,
        data_name=fields.file_name(value, "data_name", field),
        nan=fields.count(value, "NaN", field),
        inf=fields.count(value, "Inf", field),
        negative_inf=fields.count(value, "Negative_inf", field),
        true=fields.count(value, "True", field),
        **(_masses(fields, value, field) if "zeros" in value else {}),
        stride=_stride(fields, value, field),
        address=fields.count(value, "address", field),
        values=_values(fields, value, field),
    )


def _masses(fields: Fields, value: Mapping[str, Any], field: str) -> dict[str, Any]:
    """What the dump tells of values that stand many times."""
    mode, rows = (fields.pair(value, key, field) for key in ("mode", "constant_rows"))
    if mode is not None:
        mode = (finite(mode[0]), fields.share(mode[1], f"{field}.mode.1"))
    if rows is not None:
        rows = (fields.share(rows[0], f"{field}.constant_rows.0"), rows[1])
    if mode is not None and mode[0] is None:
        raise fields.error(f"{field}.mode.0", quoted(value["mode"][0]), "a finite number")
    return {"zeros": fields.share(value["zeros"], f"{field}.zeros"), "mode": mode, "constant_rows": rows}


def _stride(fields: Fields, value: Mapping[str, Any], field: str) -> tuple[int, ...] | None:
    if value.get("stride") is None:
        return None
    stride = fields.shape(value, "stride", field)
    if len(stride) != len(value["shape"]):
        raise fields.error(
            f"{field}.stride", f"{len(stride)} strides", f"one for each of {len(value['shape'])} dimensions"
        )
    return stride


def _values(fields: Fields, value: Mapping[str, Any], field: str) -> tuple[int, ...] | None:
    """The elements of an integer tensor."""
    if value.get("values") is None:
        return None
    values, dtype = fields.need(value, "values", field, list, "a list of integers"), fields.dtype(value, "dtype", field)
    count = math.prod(value["shape"])
    if len(values) != count or "int" not in dtype:
        found = f"{len(values)} values of {dtype}"
        raise fields.error(f"{field}.values", found, f"one for each of {count} elements, and an integer dtype")
    low, high = _limits(dtype)
    for index, one in enumerate(values):
        if isinstance(one, bool) or not isinstance(one, int) or not low <= one <= high:
            raise fields.error(f"{field}.values.{index}", quoted(one), f"an integer that {dtype} holds")
    return tuple(values)


def _limits(dtype: str) -> tuple[int, int]:
    """The least and the largest number of an integer dtype."""
    kind, _, bits = dtype.rpartition("int")
    return (0, 2 ** int(bits) - 1) if kind else (-(2 ** (int(bits) - 1)), 2 ** (int(bits) - 1) - 1)
