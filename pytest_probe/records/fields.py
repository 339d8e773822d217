"""Fields of a dump's JSON, read with a check: what is no such value is a RecordError that names the place."""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import msgspec

from pytest_probe.errors import NotRebuilt, RecordError
from pytest_probe.model.dump import Argument, Number
from pytest_probe.records.lazy_json import TOKENS

# What frameworks have and NumPy, with ml_dtypes, can hold.
DUMP_DTYPES = (
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128", "bool"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
)

# torch's dtypes that NumPy and ml_dtypes have no place for: quantized, bits, narrow integers, pairs.
_ODD = re.compile(r"q?u?int\d+(x\d)?|bits\d.*|complex32|float4.*")
# For the message about anything else.
_REBUILT = "a tensor, an array, a number, text, a dtype, a range or slice, or lists, tuples and dicts of them"
# Words for what is not finite: quoted in place by us, or as strings by some versions of msprobe.
_FLOATS: Mapping[str, float] = {**TOKENS, "NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
MAX_RANK = 64  # of torch and of NumPy
# Frameworks' sizes are int64.
MAX_EXTENT = 2**63
MAX_BESIDE_ZERO = 2**59  # elements of the widest dtype, complex128, whose bytes NumPy can count
# Bytes of an entry of an untrusted dump: 20,000 tensors in one call. Once decoded it takes ten times as much memory.
MAX_ENTRY = 1 << 24
MAX_TEXT = 1 << 16  # characters of a text
# No argument of a framework's is wider; uint64 has the largest.
LEAST, LARGEST = -(2**63), 2**64 - 1
# Bytes of a file's name on usual file systems.
_MAX_NAME = 255


class Fields:
    """Reads the fields of one entry; `field` is always the dotted path inside it. Each raises RecordError."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name

    def error(self, field: str, found: str, wanted: str) -> RecordError:
        return RecordError(self.path, self.name, field, found, wanted)

    def no_place(self, field: str, found: str) -> NotRebuilt:
        return NotRebuilt(self.path, self.name, field, found, _REBUILT)

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
        """The value of a key, of this kind; an empty one where there is none."""
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
        """The bare name of the dtype that a dump calls so."""
        name = self.bare(text)
        if name not in DUMP_DTYPES:
            if _ODD.fullmatch(name):
                raise self.no_place(field, f"the dtype {name}, which NumPy does not have")
            raise self.error(field, f"the unknown dtype {quoted(text)}", f"one of {', '.join(DUMP_DTYPES)}")
        return name

    @staticmethod
    def bare(text: str) -> str:
        """A dtype's name without what a format adds to it."""
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
        """A tensor's. NumPy refuses an empty array whose other sizes would overflow; others are bounded by memory."""
        shape = self.shape(value, "shape", field)
        self.check_beside_zero(shape, f"{field}.shape")
        return shape

    def check_beside_zero(self, shape: tuple[int, ...], field: str) -> None:
        if 0 in shape and math.prod(filter(None, shape)) >= MAX_BESIDE_ZERO:
            found = f"the sizes {', '.join(map(str, shape))}"
            raise self.error(field, found, "sizes whose product, zeros left out, is below 2**59")

    def file_name(self, value: Mapping[str, Any], key: str, field: str) -> str | None:
        """The bare name of a file; None where there is none."""
        if value.get(key) is None:
            return None
        name: str = self.need(value, key, field, str, "the name of a file")
        bare = PurePosixPath(name).name == name == PureWindowsPath(name).name and "\0" not in name
        if not bare or name in ("", ".", "..") or len(name) > _MAX_NAME:
            raise self.error(f"{field}.{key}", quoted(name), "the bare name of a file, without a folder")
        return name

    def number(self, value: Mapping[str, Any], key: str, field: str) -> Number | None:
        """A statistic: a number that float64 holds, true or false, null, or a word for one that is not finite."""
        number = value.get(key)
        if isinstance(number, int):
            self._check_magnitude(number, f"{field}.{key}")
        if number is None or isinstance(number, int | float):
            return number
        if isinstance(number, str) and number in _FLOATS:
            return _FLOATS[number]
        raise self.error(f"{field}.{key}", quoted(number), "a number, true, false or null")

    def real(self, value: Mapping[str, Any], key: str, field: str) -> float | None:
        number = self.number(value, key, field)
        return None if number is None else float(number)

    def pair(self, value: Mapping[str, Any], key: str, field: str) -> tuple[Any, Any] | None:
        """Two numbers, of which the second may be null; None where there are none."""
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

    def _check_magnitude(self, number: int, field: str) -> None:
        """JSON's integers may have any number of digits."""
        try:
            float(number)
        except OverflowError:
            raise self.error(field, quoted(number), "a number that float64 holds") from None


class ArgumentFields(Fields, ABC):
    """Reads the arguments of an entry, in whose JSON an object may name its type."""

    @abstractmethod
    def argument(self, value: Any, field: str) -> Argument:
        """The argument that a value tells of."""

    @abstractmethod
    def leaf(self, kind: str, value: Mapping[str, Any], field: str) -> Argument:
        """The argument of an object with the name of its type."""

    def described(self, value: Mapping[str, Any], kind: Any, field: str) -> Argument:
        """The argument of an object: of the type that it names, else a dict. An argument of a dict may be called as the
        key of a type is."""
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
