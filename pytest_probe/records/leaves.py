"""Plain values of a dump, each under the name of its type: numbers, text, ranges and slices; NumPy's scalars are those
too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from pytest_probe.model.dump import Argument
from pytest_probe.records.fields import LARGEST, LEAST, MAX_TEXT, Fields, quoted

Reader: TypeAlias = Callable[[Fields, Mapping[str, Any], str], Argument]

# Numbers of a range in an untrusted record, which an index makes a list of.
_MAX_RANGE = 1 << 20
_HELD = "an integer of at most 64 bits"


def _floating(fields: Fields, value: Mapping[str, Any], field: str) -> float:
    number = None if isinstance(value.get("value"), bool) else fields.real(value, "value", field)
    if number is None:
        found = quoted(value["value"]) if "value" in value else "nothing"
        raise fields.error(f"{field}.value", found, "a number")
    return number


def _complex(fields: Fields, value: Mapping[str, Any], field: str) -> complex:
    parts = fields.need(value, "value", field, list, "a list of real and imaginary part")
    if len(parts) != 2:
        raise fields.error(f"{field}.value", quoted(parts), "two numbers: real and imaginary part")
    return complex(*(_floating(fields, {"value": part}, field) for part in parts))


def _range(fields: Fields, value: Mapping[str, Any], field: str) -> range:
    parts = fields.need(value, "value", field, list, "a list of start, stop and step")
    if len(parts) != 3 or not all(type(part) is int for part in parts) or not parts[2]:
        raise fields.error(f"{field}.value", quoted(parts), "three integers: start, stop, and a step that is not 0")
    if not all(map(is_held, parts)) or len(range(*parts)) > _MAX_RANGE:
        raise fields.error(f"{field}.value", quoted(f"range{tuple(parts)}"), f"at most {_MAX_RANGE:,} numbers")
    return range(*parts)


def _slice(fields: Fields, value: Mapping[str, Any], field: str) -> slice:
    parts = fields.need(value, "value", field, list, "a list of start, stop and step")
    whole = all(part is None or (isinstance(part, int) and not isinstance(part, bool)) for part in parts)
    if len(parts) != 3 or not whole:
        raise fields.error(f"{field}.value", quoted(parts), "three integers or nulls: start, stop and step")
    for index, part in enumerate(parts):
        if part is not None and not is_held(part):
            raise fields.error(f"{field}.value.{index}", quoted(part), _HELD)
    return slice(*parts)


def _integer(fields: Fields, value: Mapping[str, Any], field: str) -> int:
    number: int = fields.need(value, "value", field, int, "an integer")
    if not is_held(number):
        raise fields.error(f"{field}.value", quoted(number), _HELD)
    return number


def _text(fields: Fields, value: Mapping[str, Any], field: str) -> str:
    text: str = fields.need(value, "value", field, str, "a string")
    if len(text) > MAX_TEXT:
        raise fields.error(f"{field}.value", f"a text of {len(text):,} characters", f"at most {MAX_TEXT:,}")
    return text


def is_held(number: int) -> bool:
    return LEAST <= number <= LARGEST


def _plain(kind: type, wanted: str) -> Callable[[Fields, Mapping[str, Any], str], Argument]:
    return lambda fields, value, field: fields.need(value, "value", field, kind, wanted)


_BOOL = _plain(bool, "true or false")
# By the type that a dump names: what reads such a leaf.
PLAIN: Mapping[str, Reader] = {
    "bool": _BOOL,
    "int": _integer,
    "float": _floating,
    "str": _text,
    "complex": _complex,
    "slice": _slice,
    "range": _range,
    "ellipsis": lambda fields, value, field: ...,
    "bool_": _BOOL,
    "str_": _text,
    **dict.fromkeys(("float16", "float32", "float64"), _floating),
    **dict.fromkeys(("complex64", "complex128"), _complex),
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"), _integer),
}
