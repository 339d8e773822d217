"""Fields of a dump's JSON, read and checked: a wrong value is a RecordError that names its place.

`Fields` reads one field, `ArgumentFields` the tree of an argument, and `PLAIN` the leaves that are no tensors.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, ClassVar, TypeAlias

import msgspec

from pytest_probe.errors import NotRebuilt, RecordError
from pytest_probe.model.dump import Argument, Number, TensorSpec
from pytest_probe.numerics.dtypes import PACKED
from pytest_probe.records.raw_json import TOKENS
from pytest_probe.system.tensor_files.base import MAX_EMPTY, MAX_EXTENT, MAX_RANK

LeafReader: TypeAlias = Callable[["Fields", Mapping[str, Any], str], Argument]

# Dtypes of frameworks that NumPy, with ml_dtypes, can hold.
DUMP_DTYPES = (
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128", "bool"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", PACKED),
)

# torch's dtypes that NumPy and ml_dtypes do not have: quantized, bits, narrow integers, pairs.
_NO_NUMPY_DTYPE = re.compile(r"q?u?int\d+(x\d)?|bits\d.*|complex32|float4.*")
# The kinds that the message about an unknown type lists.
_KNOWN_KINDS = "a tensor, an array, a number, text, a dtype, a range or slice, or lists, tuples and dicts of them"
# Words for numbers that are not finite: quoted in place by `lazy_json`, or as strings by some versions of msprobe.
_NONFINITE: Mapping[str, float] = {**TOKENS, "NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
# How readers count entries whose keys name none.
UNNAMED = "entries with a name that is no API call"
# Bytes of an entry of an untrusted dump, enough for 20,000 tensors in one call. Decoded, it takes ten times as much.
MAX_ENTRY = 1 << 24
MAX_TEXT = 1 << 16  # characters of a text
# The range of int64 and uint64: no framework has wider integers.
LEAST, LARGEST = -(2**63), 2**64 - 1
# Bytes of a file's name on usual file systems.
_MAX_NAME = 255
_MARKS = frozenset("/\\:\0")
_MAX_CHECKSUM = 128  # characters: the longest that is usual has 512 bits


@contextmanager
def limited_depth(path: Path, name: str) -> Iterator[None]:
    """Decode a record in here: raises RecordError where its values are nested deeper than Python recurses."""
    try:
        yield
    except RecursionError:
        raise RecordError(path, name, "", "values nested too deep", "fewer than about 500 levels") from None


class Fields:
    """Reads the fields of one entry; `field` is always the dotted path inside it. Each method raises RecordError."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name

    def error(self, field: str, found: str, wanted: str) -> RecordError:
        return RecordError(self.path, self.name, field, found, wanted)

    def no_place(self, field: str, found: str) -> NotRebuilt:
        return NotRebuilt(self.path, self.name, field, found, _KNOWN_KINDS)

    def object(self, raw: Any) -> dict[str, Any]:
        """An entry's own JSON, which must be an object."""
        body = self.decoded(raw)
        if not isinstance(body, dict):
            raise self.error("", quoted(body), "an object")
        return body

    def decoded(self, raw: Any) -> Any:
        """An entry's own JSON."""
        size = memoryview(raw).nbytes
        if size > MAX_ENTRY:
            raise self.error("", f"an entry of {size:,} bytes", f"at most {MAX_ENTRY:,}")
        try:
            return msgspec.json.decode(raw)
        except ValueError as error:
            raise self.error("", f"a value that cannot be decoded ({error})", "plain JSON in UTF-8") from None

    def optional(self, body: Mapping[str, Any], key: str, field: str, kind: type, wanted: str) -> Any:
        """The value of a key, of this kind; an empty one where the key is missing."""
        return self.need(body, key, field, kind, wanted) if key in body else kind()

    def need(self, body: Mapping[str, Any], key: str, field: str, kind: type | tuple[type, ...], wanted: str) -> Any:
        """The value of a key, of this kind; a bool is no int here."""
        place = f"{field}.{key}" if field else key
        if key not in body:
            raise self.error(place, "nothing", wanted)
        value = body[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.error(place, quoted(value), wanted)
        return value

    def dtype(self, value: Mapping[str, Any], key: str, field: str) -> str:
        return self.dtype_named(self.need(value, key, field, str, "the name of a dtype"), f"{field}.{key}")

    def dtype_named(self, text: str, field: str) -> str:
        """The bare name of the dtype with this name in a dump."""
        name = self.bare(text)
        if name not in DUMP_DTYPES:
            if _NO_NUMPY_DTYPE.fullmatch(name):
                raise self.no_place(field, f"the dtype {name}, which NumPy does not have")
            raise self.error(field, f"the unknown dtype {quoted(text)}", f"one of {', '.join(DUMP_DTYPES)}")
        return name

    @staticmethod
    def bare(text: str) -> str:
        """A dtype's name without the prefix that a format adds."""
        return text.removeprefix("torch.")

    def count(self, value: Mapping[str, Any], key: str, field: str) -> int | None:
        if value.get(key) is None:
            return None
        count: int = self.need(value, key, field, int, "a number of elements")
        if count < 0:
            raise self.error(f"{field}.{key}", quoted(count), "a number of elements, 0 or more")
        return count

    def shape(self, value: Mapping[str, Any], key: str, field: str, least: int = 0) -> tuple[int, ...]:
        shape = self.need(value, key, field, list, "a list of sizes")
        if len(shape) > MAX_RANK:
            raise self.error(f"{field}.{key}", f"{len(shape)} dimensions", f"at most {MAX_RANK}")
        for index, extent in enumerate(shape):
            if isinstance(extent, bool) or not isinstance(extent, int) or not least <= extent < MAX_EXTENT:
                raise self.error(f"{field}.{key}.{index}", quoted(extent), f"an integer from {least} on, below 2**63")
        return tuple(shape)

    def tensor_shape(self, value: Mapping[str, Any], field: str) -> tuple[int, ...]:
        """A tensor's shape. NumPy refuses an empty array whose other sizes overflow; memory bounds all others."""
        shape = self.shape(value, "shape", field)
        if 0 in shape and math.prod(filter(None, shape)) >= MAX_EMPTY:
            found = f"the sizes {', '.join(map(str, shape))}"
            raise self.error(f"{field}.shape", found, "sizes whose product, zeros left out, is below 2**59")
        return shape

    def file_name(self, value: Mapping[str, Any], key: str, field: str) -> str | None:
        """The bare name of a file; None without one."""
        if value.get(key) is None:
            return None
        name: str = self.need(value, key, field, str, "the name of a file")
        # Most names have no mark that could make a path of them.
        plain = _MARKS.isdisjoint(name)
        bare = plain or (PurePosixPath(name).name == name == PureWindowsPath(name).name and "\0" not in name)
        if not bare or name in ("", ".", "..") or len(name) > _MAX_NAME:
            raise self.error(f"{field}.{key}", quoted(name), "the bare name of a file, without a folder")
        return name

    def checksum(self, value: Mapping[str, Any], key: str, field: str) -> str:
        """A checksum of any kind; "" without one."""
        if value.get(key) is None:
            return ""
        text: str = self.need(value, key, field, str, "a checksum")
        if len(text) > _MAX_CHECKSUM or not text.isascii() or not text.isprintable():
            raise self.error(f"{field}.{key}", quoted(text), f"at most {_MAX_CHECKSUM} letters and digits")
        return text

    def number(self, value: Mapping[str, Any], key: str, field: str) -> Number | None:
        """A statistic: a number that float64 holds, true or false, null, or a word for one that is not finite."""
        number = value.get(key)
        if isinstance(number, int):
            # JSON's integers may have any number of digits.
            try:
                float(number)
            except OverflowError:
                raise self.error(f"{field}.{key}", quoted(number), "a number that float64 holds") from None
        if number is None or isinstance(number, int | float):
            return number
        if isinstance(number, str) and number in _NONFINITE:
            return _NONFINITE[number]
        raise self.error(f"{field}.{key}", quoted(number), "a number, true, false or null")

    def real(self, value: Mapping[str, Any], key: str, field: str) -> float | None:
        number = self.number(value, key, field)
        return None if number is None else float(number)

    def pair(self, value: Mapping[str, Any], key: str, field: str) -> tuple[Any, Any] | None:
        """Two numbers, of which the second may be null; None where the key is missing."""
        if value.get(key) is None:
            return None
        pair = self.need(value, key, field, list, "a list of two numbers")
        if len(pair) != 2:
            raise self.error(f"{field}.{key}", quoted(pair), "a list of two numbers")
        first, second = (self.real({"0": one}, "0", f"{field}.{key}") for one in pair)
        return first, second

    def share(self, share: Any, field: str) -> float:
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise self.error(field, quoted(share), "a share, from 0 to 1")
        return float(share)


class ArgumentFields(Fields):
    """Reads the arguments of an entry, in whose JSON an object may name its type.

    leaves: what reads an object of each type, NumPy's scalars without "numpy.".
    """

    leaves: ClassVar[Mapping[str, LeafReader]]

    def argument(self, value: Any, field: str) -> Argument:
        """The argument that a JSON value describes."""
        if value is None:
            return None
        if isinstance(value, list):
            return self.items(value, field)
        if not isinstance(value, dict):
            raise self.error(field, quoted(value), "an object, a list or null")
        return self.typed(value, value.get("type"), field)

    def items(self, values: Sequence[Any], field: str) -> list[Argument]:
        return [self.argument(value, f"{field}.{index}") for index, value in enumerate(values)]

    def gradient(self, value: Any, field: str) -> Argument:
        return None if value is None else self.argument(value, field)

    def tensors(
        self, values: Sequence[Any], field: str, wanted: str = "a tensor or null"
    ) -> tuple[TensorSpec | None, ...]:
        """Gradients, None for missing ones."""
        found = tuple(self.gradient(value, f"{field}.{index}") for index, value in enumerate(values))
        for index, item in enumerate(found):
            if not isinstance(item, TensorSpec | None):
                raise self.error(f"{field}.{index}", quoted(values[index]), wanted)
        return found

    def leaf(self, kind: str, value: Mapping[str, Any], field: str) -> Argument:
        """The argument of an object with the name of its type."""
        read = self.leaves.get(kind.removeprefix("numpy."))
        if read is None:
            raise self.no_place(f"{field}.type", quoted(kind))
        return read(self, value, field)

    def typed(self, value: Mapping[str, Any], kind: Any, field: str) -> Argument:
        """The argument of an object: of the type that it names, else a dict. A dict's own key may be "type": then its
        value is no text."""
        if isinstance(kind, str):
            return self.leaf(kind, value, field)
        if kind is not None and not isinstance(kind, dict | list):
            raise self.error(f"{field}.type", quoted(kind), "the name of a type")
        return {key: self.argument(item, f"{field}.{key}") for key, item in value.items()}


def finite(number: Number | None) -> float | None:
    try:
        return float(number) if number is not None and math.isfinite(number) else None
    except OverflowError:
        return None


def quoted(value: Any) -> str:
    """A value for a message: short, and as JSON says it."""
    if isinstance(value, dict):
        return f"an object with the keys {', '.join(map(str, value))}"[:80] if value else "an empty object"
    if isinstance(value, list):
        return f"a list of {len(value)}" if value else "an empty list"
    if isinstance(value, str) and value in TOKENS:
        return str(TOKENS[value])
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


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
    if not all(map(_is_held, parts)) or len(range(*parts)) > _MAX_RANGE:
        raise fields.error(f"{field}.value", quoted(f"range{tuple(parts)}"), f"at most {_MAX_RANGE:,} numbers")
    return range(*parts)


def _slice(fields: Fields, value: Mapping[str, Any], field: str) -> slice:
    parts = fields.need(value, "value", field, list, "a list of start, stop and step")
    whole = all(part is None or (isinstance(part, int) and not isinstance(part, bool)) for part in parts)
    if len(parts) != 3 or not whole:
        raise fields.error(f"{field}.value", quoted(parts), "three integers or nulls: start, stop and step")
    for index, part in enumerate(parts):
        if part is not None and not _is_held(part):
            raise fields.error(f"{field}.value.{index}", quoted(part), _HELD)
    return slice(*parts)


def _integer(fields: Fields, value: Mapping[str, Any], field: str) -> int:
    number: int = fields.need(value, "value", field, int, "an integer")
    if not _is_held(number):
        raise fields.error(f"{field}.value", quoted(number), _HELD)
    return number


def _text(fields: Fields, value: Mapping[str, Any], field: str) -> str:
    text: str = fields.need(value, "value", field, str, "a string")
    if len(text) > MAX_TEXT:
        raise fields.error(f"{field}.value", f"a text of {len(text):,} characters", f"at most {MAX_TEXT:,}")
    return text


def _is_held(number: int) -> bool:
    return LEAST <= number <= LARGEST


# By the type that a dump names: what reads such a leaf.
PLAIN: Mapping[str, LeafReader] = {
    "int": _integer,
    "float": _floating,
    "str": _text,
    "complex": _complex,
    "slice": _slice,
    "range": _range,
    "ellipsis": lambda fields, value, field: ...,
    **dict.fromkeys(
        ("bool", "bool_"), lambda fields, value, field: fields.need(value, "value", field, bool, "true or false")
    ),
    "str_": _text,
    **dict.fromkeys(("float16", "float32", "float64"), _floating),
    **dict.fromkeys(("complex64", "complex128"), _complex),
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"), _integer),
}
