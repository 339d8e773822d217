"""One entry of a PaddleAPEX dump, decoded: what the JSON says becomes a Call, or a RecordError that names the field."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from pytest_probe.errors import LostArgument, RecordError
from pytest_probe.model.dump import Argument, Call, DeviceSpec, DtypeSpec, Record, TensorSpec
from pytest_probe.numerics.dtypes import is_complex, is_floating
from pytest_probe.records import paddle_dtypes
from pytest_probe.records.fields import DUMP_DTYPES, MAX_ENTRY, ArgumentFields, quoted
from pytest_probe.records.leaves import PLAIN
from pytest_probe.records.paddle_apis import has_gradient
from pytest_probe.records.paddleapex.tensors import is_rounded, tensor

_TENSOR = "paddle.Tensor"
# Paddle's own dtypes are bare strings.
_DTYPE = "paddle."
# What stands in the list of incoming gradients where none came.
_FAILED = "Failed"
_WANTED = re.compile(rb'"stop_gradient"\s*:\s*false')
# Keywords whose values are places where they are no text: PaddleAPEX writes those as null.
_PLACES = ("place", "device")
_NOT_WRITTEN = "null, which PaddleAPEX writes for what it has no form for (an array, a place, a group, a layer)"


def decode(path: Path, record: Record) -> Call:
    """The call that a record of the dump at path describes.

    Raises RecordError for whatever cannot be understood, LostArgument where PaddleAPEX did not write an argument.
    """
    try:
        entry = _Entry(path, f"{record.name}.forward")
        return entry.call(entry.object(record.forward), backward=record.backward is not None)
    except RecursionError:
        raise RecordError(path, record.name, "", "values nested too deep", "fewer than about 500 levels") from None


def has_backward(api: str, raw: Any) -> bool:
    """May the API have a gradient, and is there a floating tensor among the arguments of an entry that wants one?"""
    view = memoryview(raw)
    if view.nbytes > MAX_ENTRY or not _WANTED.search(view) or not has_gradient(api, view):
        return False
    try:
        body = msgspec.json.decode(raw)
        return isinstance(body, dict) and any(map(_wants_gradient, _tensors([body.get("args"), body.get("kwargs")])))
    except (ValueError, RecursionError):
        return False


def _tensors(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict) and value.get("type") == _TENSOR:
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors(item)


def _wants_gradient(tensor: Mapping[str, Any]) -> bool:
    dtype = paddle_dtypes.bare(str(tensor.get("dtype")))
    return tensor.get("stop_gradient") is False and dtype in DUMP_DTYPES and (is_floating(dtype) or is_complex(dtype))


class _Entry(ArgumentFields):
    @staticmethod
    def bare(text: str) -> str:
        return paddle_dtypes.bare(text)

    def call(self, body: Mapping[str, Any], backward: bool) -> Call:
        """backward: the record has one."""
        args = self.items(self.need(body, "args", "", list, "a list of arguments"), "args")
        kwargs = self.optional(body, "kwargs", "", dict, "an object of arguments")
        named = {key: self.keyword(key, value) for key, value in kwargs.items()}
        gradients = self.gradients(self.optional(body, "dout_list", "", list, "a list of gradients"))
        return Call(tuple(args), named, None, gradients if backward else None)

    def gradients(self, values: list[Any]) -> tuple[TensorSpec | None, ...]:
        """The incoming gradients, in the order in which they came; none where not all came."""
        if _FAILED in values:
            return ()
        found = tuple(
            None if value is None else self.argument(value, f"dout_list.{index}") for index, value in enumerate(values)
        )
        for index, item in enumerate(found):
            if not isinstance(item, TensorSpec | None):
                raise self.error(f"dout_list.{index}", quoted(values[index]), f'a tensor, null or "{_FAILED}"')
        return found

    def items(self, values: list[Any], field: str) -> list[Argument]:
        return [self.argument(value, f"{field}.{index}") for index, value in enumerate(values)]

    def keyword(self, key: str, value: Any) -> Argument:
        if value is None and key in _PLACES:
            return DeviceSpec("cpu")  # the replay puts its own in the place of any
        return self.argument(value, f"kwargs.{key}")

    def argument(self, value: Any, field: str) -> Argument:
        if value is None:
            raise LostArgument(self.path, self.name, field, _NOT_WRITTEN, "the argument")
        if isinstance(value, str) and value.startswith(_DTYPE):
            return DtypeSpec(self.dtype_named(value, field))
        if isinstance(value, list):
            return self.sizes(self.items(value, field), field)
        if not isinstance(value, dict):
            raise self.error(field, quoted(value), "an object, a list or the name of a dtype")
        return self.described(value, value.get("type"), field)

    def leaf(self, kind: str, value: Mapping[str, Any], field: str) -> Argument:
        if kind == _TENSOR:
            return tensor(self, value, field)
        if kind == "NoneType":
            return None
        read = PLAIN.get(kind.removeprefix("numpy."))
        if read is None:
            raise self.no_place(f"{field}.type", quoted(kind))
        found = read(self, value, field)
        return paddle_dtypes.text_or_dtype(found) if isinstance(found, str) else found

    def sizes(self, values: list[Argument], field: str) -> list[Argument]:
        """A list in which a tensor stands beside integers gives sizes: such a tensor is known by its values alone."""
        if any(type(value) is int for value in values):
            for index, value in enumerate(values):
                if isinstance(value, TensorSpec) and value.data_name is None and is_rounded(value):
                    found = "a tensor whose value was not stored, and whose range is rounded"
                    raise LostArgument(self.path, self.name, f"{field}.{index}", found, "its value, which is a size")
        return values
