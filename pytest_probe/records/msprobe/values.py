"""Arguments in a dump of msprobe's: tensors with statistics and what our own capture adds; plain values, dtypes,
devices and layouts by the name of their type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from pytest_probe.model.dump import DeviceSpec, DtypeSpec, MemoryFormatSpec, SizeSpec, TensorSpec
from pytest_probe.records.fields import PLAIN, Fields, LeafReader, finite, quoted


def tensor(fields: Fields, value: Mapping[str, Any], field: str) -> TensorSpec:
    high, low = (fields.number(value, f"{key}_except_inf_nan", field) for key in ("Max", "Min"))
    top, bottom = (fields.number(value, key, field) for key in ("Max", "Min"))
    # In one version of msprobe Max is of all elements, in another of the finite ones; the other one has a longer name.
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
    """What the dump says of values that occur many times."""
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


MEMORY_FORMATS = ("preserve_format", "contiguous_format", "channels_last", "channels_last_3d")


def _memory_format(fields: Fields, value: Mapping[str, Any], field: str) -> MemoryFormatSpec:
    key = "format" if "format" in value else "value"
    text = fields.need(value, key, field, str, "the name of a memory format")
    name = text.removeprefix("torch.")
    if name not in MEMORY_FORMATS:
        raise fields.error(f"{field}.{key}", quoted(text), f"one of {', '.join(MEMORY_FORMATS)}")
    return MemoryFormatSpec(name)


def _layout(fields: Fields, value: Mapping[str, Any], field: str) -> None:
    """Raises for other layouts than the usual one, whose tensors no dump holds."""
    name = fields.need(value, "layout", field, str, "the name of a layout")
    if name != "torch.strided":
        raise fields.no_place(f"{field}.layout", f"the layout {name}")


def _device(fields: Fields, value: Mapping[str, Any], field: str) -> DeviceSpec:
    text: str = fields.need(value, "value", field, str, "the name of a device")
    return DeviceSpec(text.removesuffix(":None"))


# What reads a leaf, by the name of its type.
LEAVES: Mapping[str, LeafReader] = {
    **PLAIN,
    "dict": lambda fields, value, field: {},
    "torch._C.Generator": lambda fields, value, field: None,  # only the distribution of its numbers is known
    "torch.Size": lambda fields, value, field: SizeSpec(fields.shape(value, "value", field, -1)),  # what is left
    "torch.dtype": lambda fields, value, field: DtypeSpec(fields.dtype(value, "value", field)),
    "torch.device": _device,
    "paddle.dtype": lambda fields, value, field: DtypeSpec(fields.dtype(value, "value", field)),
    "paddle.Place": _device,
    "torch.layout": _layout,
    "torch.memory_format": _memory_format,
    "ndarray": lambda fields, value, field: replace(tensor(fields, value, field), ndarray=True),
}
