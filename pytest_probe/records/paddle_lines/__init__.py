"""Text files of Paddle's calls, one a line, as paddle.api_tracer and PaddleAPITest write them.

In: the file. Out: a `Dump` of unparsed lines, and each as a `Call`; a line's number is its call's number.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from pytest_probe.errors import LostArgument, RecordError
from pytest_probe.model.dump import Call, Dump, Lost, Record, Surroundings, leaves
from pytest_probe.records import lazy_json
from pytest_probe.records.fields import MAX_ENTRY
from pytest_probe.records.lazy_json import without_mark
from pytest_probe.records.paddle import has_gradient, no_frames
from pytest_probe.records.paddle_lines.parser import ParsedLine, Unparsed, parse
from pytest_probe.system.process import paused_gc

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
    return bytes(lazy_json.read_bytes(path)).splitlines()


def _is_good(line: bytes) -> bool:
    if not (_PADDLE.match(line) and _TOOLS.search(line)):
        return False
    try:
        _parsed(line)
    except Unparsed:
        return False
    return True


def _parsed(line: bytes) -> ParsedLine:
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
