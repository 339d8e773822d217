"""What is no tensor in a dump of msprobe's: plain values, dtypes, devices, layouts, by the type that the dump names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from pytest_probe.model.dump import DeviceSpec, DtypeSpec, MemoryFormatSpec, SizeSpec
from pytest_probe.records.fields import Fields, quoted
from pytest_probe.records.leaves import PLAIN, Reader
from pytest_probe.records.msprobe.tensors import tensor

MEMORY_FORMATS = ("preserve_format", "contiguous_format", "channels_last", "channels_last_3d")


def _memory_format(fields: Fields, value: Mapping[str, Any], field: str) -> MemoryFormatSpec:
    key = "format" if "format" in value else "value"
    text = fields.need(value, key, field, str, "the name of a memory format")
    name = text.removeprefix("torch.")
    if name not in MEMORY_FORMATS:
        raise fields.error(f"{field}.{key}", quoted(text), f"one of {', '.join(MEMORY_FORMATS)}")
    return MemoryFormatSpec(name)


def _layout(fields: Fields, value: Mapping[str, Any], field: str) -> None:
    """None stands for the usual one, and no dump holds tensors of others."""
    name = fields.need(value, "layout", field, str, "the name of a layout")
    if name != "torch.strided":
        raise fields.no_place(f"{field}.layout", f"the layout {name}")


def _device(fields: Fields, value: Mapping[str, Any], field: str) -> DeviceSpec:
    text: str = fields.need(value, "value", field, str, "the name of a device")
    return DeviceSpec(text.removesuffix(":None"))


# By the type that a dump names: what reads such a leaf. Others are said to have no place here.
LEAVES: Mapping[str, Reader] = {
    **PLAIN,
    "dict": lambda fields, value, field: {},
    "torch._C.Generator": lambda fields, value, field: None,  # what a generator draws is known by its law only
    "torch.Size": lambda fields, value, field: SizeSpec(fields.shape(value, "value", field, -1)),  # what is left
    "torch.dtype": lambda fields, value, field: DtypeSpec(fields.dtype(value, "value", field)),
    "torch.device": _device,
    "paddle.dtype": lambda fields, value, field: DtypeSpec(fields.dtype(value, "value", field)),
    "paddle.Place": _device,
    "torch.layout": _layout,
    "torch.memory_format": _memory_format,
    "ndarray": lambda fields, value, field: replace(tensor(fields, value, field), ndarray=True),
}
