"""Text files of Paddle's calls, one a line, as paddle.api_tracer and PaddleAPITest write them.

In: the file. Out: a `Dump` of unparsed lines, and each as a `Call`; a line's number is its call's number. A line has
the name of an API, and its arguments, each followed by a comma, the last one too:
`paddle.concat(list[Tensor([2, 3],"float32"),Tensor([1, 3],"float32"),], axis=0, )`.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import NoReturn

from msgspec import Struct

from pytest_probe.errors import LostArgument, RecordError
from pytest_probe.model.dump import (
    Argument,
    Call,
    DtypeSpec,
    Dump,
    Lost,
    Record,
    Surroundings,
    TensorSpec,
    leaves,
    no_frames,
)
from pytest_probe.numerics.dtypes import is_inexact
from pytest_probe.records import raw_json
from pytest_probe.records.fields import DUMP_DTYPES, LARGEST, LEAST, MAX_ENTRY, MAX_TEXT
from pytest_probe.records.paddleapex import bare_dtype, has_gradient, text_or_dtype
from pytest_probe.records.raw_json import without_mark
from pytest_probe.system.process import paused_gc
from pytest_probe.system.tensor_files.base import MAX_EMPTY, MAX_EXTENT, MAX_RANK

_NAME = r"[A-Za-z_]\w*"
_API = re.compile(rf"\s*({_NAME}(?:\.{_NAME})+)\(", re.ASCII)
_BLANK = re.compile(r"\s*", re.ASCII)
_KEYWORD = re.compile(rf"({_NAME})\s*=\s*", re.ASCII)
# Texts have no escapes: a text ends at the first quote after which an argument may end.
_TEXT = re.compile(r'"(.*?)"(?=\s*(?:[,)\]]|$))')
_TENSOR = re.compile(r'Tensor\((?:paddle\.Size\(\[([-\d,\s]*)\]\)|\[([-\d,\s]*)\])\s*,\s*"(\w*)"\s*', re.ASCII)
# Every digit matches in one way only: `\d*\.?\d*` would take quadratic time.
_DIGITS = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_NUMBER = re.compile(rf"[-+]?{_DIGITS}(?![\w.+-])", re.ASCII)
_COMPLEX = re.compile(rf"[-+]?(?:{_DIGITS}[-+])?{_DIGITS}j(?![\w.+-])", re.ASCII)
_WORD = re.compile(r"[-+]?[A-Za-z_][\w.]*", re.ASCII)
_DTYPE = re.compile(r"\s*([\w.]*)\s*\)", re.ASCII)
# The dtypes of Python's types, in Paddle as in NumPy.
_TYPES = {"int": "int64", "float": "float64", "complex": "complex128"}
_MAX_DIGITS = 20  # of 64 bits
_CONSTANTS: dict[str, Argument] = {"None": None, "True": True, "False": False, "Ellipsis": ...} | {
    f"{sign}{module}{name}": float(f"{sign}{name}")
    for sign in ("", "-", "+")
    for module in ("", "math.")
    for name in ("inf", "nan")
}
_VALUE = "an argument: a number, a text, Tensor(...), list[...], tuple(...), slice(...), None, True, False"


class Unparsed(Exception):
    """A line is no call. column counts from 1; `found` is there instead of `wanted`."""

    def __init__(self, column: int, found: str, wanted: str) -> None:
        super().__init__(f"column {column}: found {found}, expected {wanted}")
        self.column, self.found, self.wanted = column, found, wanted


class _ParsedLine(Struct, frozen=True):
    """A call that a line describes. Lost replaces a tensor that gave a size or an end of a slice; lost says whether
    there is one."""

    api: str
    args: tuple[Argument, ...]
    kwargs: dict[str, Argument]
    lost: bool = False


def parse(text: str) -> _ParsedLine:
    """The call that a line describes. Raises Unparsed, or RecursionError where lists are nested too deep."""
    return _Line(text).call()


class _Line:
    """A line, read from its beginning; `at` is where reading goes on."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._indexes = self._lost = False

    def call(self) -> _ParsedLine:
        match = _API.match(self.text)
        if match is None:
            self.at = _end(_BLANK, self.text, 0)
            self.fail("a call, as paddle.add(...)")
        self.at = match.end()
        # A tensor in an index gives places, whose values can be generated.
        self._indexes = match[1].endswith("item__")
        args, kwargs = self.arguments()
        self.skip()
        if self.at < len(self.text):
            self.fail("the end of the line")
        return _ParsedLine(match[1], tuple(args), kwargs, self._lost)

    def arguments(self) -> tuple[list[Argument], dict[str, Argument]]:
        args: list[Argument] = []
        kwargs: dict[str, Argument] = {}
        while not self.close(")"):
            keyword = _KEYWORD.match(self.text, self.at)
            if keyword is None and kwargs:
                self.fail("an argument with its name, behind another one with a name")
            if keyword is None:
                args.append(self.value())
            elif keyword[1] in kwargs:
                self.fail(f"one value for {keyword[1]}")
            else:
                self.at = keyword.end()
                kwargs[keyword[1]] = self.value()
            self.separate(")")
        return args, kwargs

    def value(self) -> Argument:
        text, start = self.text, self.at
        first = text[start : start + 1]
        if first == "T" and (tensor := _TENSOR.match(text, start)):
            return self.tensor(tensor)
        if first == '"':
            return self.text_argument()
        if number := _NUMBER.match(text, start):
            return self.number(number)
        if number := _COMPLEX.match(text, start):
            self.at = number.end()
            return complex(number[0])
        if first and first in "[(":
            return self.sequence(first)
        word = _WORD.match(text, start)
        if word is None:
            self.fail(_VALUE)
        if word[0] in _CONSTANTS:
            self.at = word.end()
            return _CONSTANTS[word[0]]
        read = _READ.get(text[start : word.end() + 1])
        if read is None:
            self.fail(_VALUE)
        self.at = word.end()
        return read(self)

    def sequence(self, opening: str) -> Argument:
        """Values up to the bracket that closes this one, as a list or a tuple."""
        self.at += 1
        items: list[Argument] = []
        closing = "]" if opening == "[" else ")"
        while not self.close(closing):
            items.append(self.value())
            self.separate(closing)
        if not self._indexes and any(type(item) is int for item in items):
            # A tensor of one integer in a list of integers gives a size.
            for place, item in enumerate(items):
                if isinstance(item, TensorSpec) and item.size == 1 and not item.requires_grad:
                    items[place] = self.lost()
        return items if opening == "[" else tuple(items)

    def tensor(self, match: re.Match[str]) -> TensorSpec:
        try:
            spec = _tensor(match[1] if match[2] is None else match[2], match[3])
        except ValueError as error:
            found, wanted = error.args
            raise Unparsed(self.at + 1, found, wanted) from None
        self.at = match.end()
        if self.text[self.at : self.at + 1] == ")":
            self.at += 1
        else:
            self.separate(")")
            self.arguments()  # strides and place, which change no value
        return spec

    def text_argument(self) -> Argument:
        match = _TEXT.match(self.text, self.at)
        if match is None:
            self.fail("a text with a closing quote before a comma or a bracket")
        if len(match[1]) > MAX_TEXT:
            raise Unparsed(self.at + 1, f"a text of {len(match[1]):,} characters", f"at most {MAX_TEXT:,}")
        self.at = match.end()
        return text_or_dtype(match[1])

    def number(self, match: re.Match[str]) -> int | float:
        text = match[0]
        if not text.lstrip("-+").isdecimal():
            self.at = match.end()
            return float(text)
        number = int(text) if len(text) <= _MAX_DIGITS else LARGEST + 1
        if not LEAST <= number <= LARGEST:
            self.fail("an integer of at most 64 bits")
        self.at = match.end()
        return number

    def slice(self) -> Argument:
        parts = self.parts("slice", 3)
        if any(isinstance(part, TensorSpec) for part in parts):
            return self.lost()
        if not all(part is None or type(part) is int for part in parts):
            self.fail("integers or None in the slice before it")
        return slice(*parts)

    def complex(self) -> Argument:
        parts = self.parts("complex", 2)
        if not all(type(part) in (int, float) for part in parts):
            self.fail("two numbers in the complex number before it")
        return complex(*parts)

    def parts(self, name: str, count: int) -> list[Argument]:
        """The values of a call of so many."""
        self.at += 1
        parts: list[Argument] = []
        while not self.close(")"):
            parts.append(self.value())
            self.separate(")")
        if len(parts) != count:
            self.fail(f"{count} values in the {name} before it")
        return parts

    def lost(self) -> Lost:
        self._lost = True
        return Lost()

    def dtype(self) -> Argument:
        match = _DTYPE.match(self.text, self.at + 1)
        name = _TYPES.get(match[1]) or bare_dtype(match[1]) if match else ""
        if match is None or name not in DUMP_DTYPES:
            self.at += 1
            self.fail(f"a dtype: one of {', '.join(DUMP_DTYPES)}")
        self.at = match.end()
        return DtypeSpec(name)

    def close(self, bracket: str) -> bool:
        """Is the bracket here? If so, reading continues after it."""
        self.skip()
        if self.text[self.at : self.at + 1] != bracket:
            return False
        self.at += 1
        return True

    def separate(self, bracket: str) -> None:
        """After an argument: go past its comma, or stop before the closing bracket."""
        self.skip()
        here = self.text[self.at : self.at + 1]
        if here == ",":
            self.at += 1
        elif here != bracket:
            self.fail(f"a comma or {bracket}")

    def skip(self) -> None:
        if self.text[self.at : self.at + 1].isspace():
            self.at = _end(_BLANK, self.text, self.at)

    def fail(self, wanted: str) -> NoReturn:
        rest = self.text[self.at : self.at + 24]
        raise Unparsed(self.at + 1, repr(rest) if rest else "the end of the line", wanted)


# What reads the rest, by the word with its bracket.
_READ: dict[str, Callable[[_Line], Argument]] = {
    "list[": lambda line: line.sequence("["),
    "tuple(": lambda line: line.sequence("("),
    "slice(": _Line.slice,
    "complex(": _Line.complex,
    "Dtype(": _Line.dtype,
    "VarType(": _Line.dtype,
    "type(": _Line.dtype,
}


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


@lru_cache(maxsize=4096)
def _tensor(sizes: str, dtype: str) -> TensorSpec:
    """Raises ValueError with what was found and what was expected."""
    name = bare_dtype(dtype)
    if name not in DUMP_DTYPES:
        raise ValueError(f"the unknown dtype {dtype!r}", f"one of {', '.join(DUMP_DTYPES)}")
    parts = [part.strip() for part in sizes.split(",")]
    parts = parts[:-1] if not parts[-1] else parts
    shape = tuple(int(part) if part.isdecimal() and len(part) < _MAX_DIGITS else -1 for part in parts)
    if len(shape) > MAX_RANK or any(not 0 <= extent < MAX_EXTENT for extent in shape):
        raise ValueError(f"the shape [{sizes[:60]}]", f"at most {MAX_RANK} sizes, integers from 0 on, below 2**63")
    if 0 in shape and math.prod(filter(None, shape)) >= MAX_EMPTY:
        raise ValueError(f"the shape [{sizes[:60]}]", "sizes whose product, zeros left out, is below 2**59")
    return TensorSpec(name, shape, requires_grad=is_inexact(name))


# How a call begins. A text file is of this format if one of its lines can be parsed, whatever the others are.
_CALL = re.compile(rb"\s*([A-Za-z_][\w]*)\.([\w.]*\w)\(")
_PADDLE = re.compile(rb"^[ \t]*paddle\.[\w.]+\(", re.MULTILINE)
# Tools end each argument with a comma; a program's own calls don't.
_TOOLS = re.compile(rb",\s*\)\s*$|\(\)\s*$")
# A floating tensor; sizes hold no bracket, so the search ends at the next tensor.
_FLOATING = re.compile(rb'Tensor\((?:paddle\.Size\()?\[[^][(")]*\]\)?\s*,\s*"(?:b?float|complex)')
# The name of a line that is no call, for its item.
_UNPARSED = ("line", "unparsed")
_TRACER = "paddle.api_tracer writes such lines"


class PaddleLinesReader:
    """Reads one call a line; the line's number is the call's. Lines are parsed when their records are decoded."""

    name = "paddle_lines"

    def sniff(self, path: Path, head: bytes) -> bool:
        """Does a line hold a call of Paddle's in the form that its tools write?"""
        if not _PADDLE.search(without_mark(head)):
            return False
        return any(map(_is_good, without_mark(head).splitlines())) or any(map(_is_good, _lines(path)))

    def read(self, path: Path) -> Dump:
        """Read the file. A line that is no call becomes a record too, whose decoding says so."""
        with paused_gc():
            records = tuple(_records(_lines(path)))
        return Dump(
            path=path,
            framework="paddle",
            task="configurations",
            level="",
            records=records,
            decode=partial(_decode, path),
            stack=no_frames,
            fields={"input": "args", "kwargs": "kwargs", "grad": "gradients"},
        )


def unreadable_line(head: bytes) -> str:
    """Why no line of a file that begins so can be read; "" where none looks like a call of Paddle's."""
    for number, line in enumerate(without_mark(head).splitlines(), 1):
        if _PADDLE.match(line):
            try:
                _parsed(line)
            except Unparsed as error:
                return f"line {number}, {error}"
            return f"line {number}: a call without a comma behind its last argument; {_TRACER}"
    return ""


def _lines(path: Path) -> list[bytes]:
    return bytes(raw_json.read_bytes(path)).splitlines()


def _is_good(line: bytes) -> bool:
    if not (_PADDLE.match(line) and _TOOLS.search(line)):
        return False
    try:
        _parsed(line)
    except Unparsed:
        return False
    return True


def _parsed(line: bytes) -> _ParsedLine:
    if len(line) > MAX_ENTRY:
        raise Unparsed(1, f"a line of {len(line):,} bytes", f"at most {MAX_ENTRY:,}")
    try:
        return parse(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        column = len(line[: error.start].decode("utf-8")) + 1
        raise Unparsed(column, f"the byte 0x{line[error.start]:02x}", "UTF-8") from None
    except RecursionError:
        raise Unparsed(1, "lists that stand in each other too deep", "fewer than about 300 levels") from None


def _records(lines: Iterable[bytes]) -> Iterator[Record]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        match = _CALL.match(line)
        namespace, api = (match[1].decode("ascii"), match[2].decode("ascii")) if match else _UNPARSED
        backward = line if _FLOATING.search(line) and has_gradient(api, line) else None
        yield Record(f"{namespace}.{api}.{number}", sys.intern(namespace), sys.intern(api), number, line, backward)


def _decode(path: Path, record: Record) -> Call:
    """The call that a line describes, without values and gradients."""
    entry, place = f"{record.name}.forward", f"line {record.number}"
    try:
        call = _parsed(record.forward)
    except Unparsed as error:
        raise RecordError(path, entry, f"{place}, column {error.column}", error.found, error.wanted) from None
    if call.lost:
        trees = ((call.args, "args"), (call.kwargs, "kwargs"))
        lost = [field for tree, root in trees for field, value in leaves(tree, root) if isinstance(value, Lost)]
        found = "a tensor without its value"
        raise LostArgument(path, entry, f"{place}, {', '.join(lost)}", found, "the integer that it held")
    gradients = None if record.backward is None else ()
    return Call(call.args, call.kwargs, None, gradients, surroundings=Surroundings())
