"""The lines of a ptdbg dump: which call each belongs to, what is wrong with lines that belong to none, and the call's
stack.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct, field

from pytest_probe.model.dump import Direction, Frame
from pytest_probe.records import raw_json
from pytest_probe.records.fields import MAX_ENTRY
from pytest_probe.system.text import printable, printable_line

# Elements of a line with a tensor or a number: name, step, an empty list, dtype, shape, statistics; and of a stack's.
VALUE, _STACK = 6, 2
# How a line begins: the call's name as ptdbg writes it, "Tensor_add__4", its direction, and what of the call this is:
# "input", with its place, ".1.0". A name has inner and trailing underscores, so only its ends are sure.
_CALL = rb"([A-Za-z][A-Za-z0-9]*)_([A-Za-z_][A-Za-z0-9_.]{0,200})_(0|[1-9][0-9]{0,17})"
_NAMED = re.compile(
    rb'[ \t\r]*\[[ \t]*"((?:'
    + _CALL
    + rb'|[^"\\]{1,300})_(forward|backward))_(input|output|stack_info)([.0-9]{0,100})"'
)
# The same in any line: the beginning of a file may be damaged.
_ANYWHERE = re.compile(b"^" + _NAMED.pattern, re.MULTILINE)
# All consecutive lines with values of one entry: one match for many lines.
_RUN = re.compile(
    rb'\["(?P<entry>' + _CALL + rb'_(forward|backward))_(?:in|out)put[.0-9]{0,100}"[^\n]*'
    rb'(?:\n\["(?P=entry)_(?:in|out)put[.0-9]{0,100}"[^\n]*)*'
)
_STACK_INFO = b"stack_info"
# Raw: most lines are never decoded.
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
_VALUES = msgspec.json.Decoder(tuple[str, msgspec.Raw, msgspec.Raw, msgspec.Raw, msgspec.Raw, msgspec.Raw])
_EXAMPLE = "one as Torch_relu_0_forward_input.0"
_WANTED = "a JSON array of 6 elements, or of 2 with a stack"


class _Entry(Struct):
    """One direction of a call: its stack, and its lines with values.

    Each piece is consecutive lines, after the number of the first one and a tab. names counts the names of an entry
    with several pieces.
    """

    stack: bytes = b""
    pieces: list[bytes] = field(default_factory=list)
    names: Counter[str] | None = None

    @property
    def raw(self) -> bytes:
        return b"\n".join(self.pieces)


class _CallLines(Struct):
    """The lines of one call, "Tensor.add_.4"."""

    name: str
    namespace: str
    api: str
    number: int
    entries: dict[Direction, _Entry] = field(default_factory=dict)


class SortedLines(Struct):
    """What a file holds: the lines of calls in the order of their first ones, the names that occur twice, the errors of
    lines without a record, and the number of lines with values and with stacks."""

    calls: dict[bytes, _CallLines] = field(default_factory=dict)
    repeated: dict[str, int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    values: int = 0
    stacks: int = 0


def is_ptdbg(head: bytes) -> bool:
    """Does a line begin as ptdbg's do?"""
    return bool(_ANYWHERE.search(raw_json.without_mark(head)))


def sort_lines(content: bytes) -> SortedLines:
    """Every line of a file, with its call. A broken line with a forward value belongs to its call, whose decoding
    raises an error; `broken` has the errors of all others."""
    found = SortedLines()
    entries: dict[bytes, _Entry] = {}
    at, number = 0, 1
    while at < len(content):
        line_end = content.find(b"\n", at)
        line_end = line_end if line_end >= 0 else len(content)
        # A stack of a known entry needs no regular expression.
        name = content[at + 2 : line_end].partition(b'"')[0]
        known = entries.get(name[: -len(_STACK_INFO) - 1]) if name.endswith(_STACK_INFO) else None
        run = _RUN.match(content, at) if known is None else None
        text = content[at : run.end() if run is not None else line_end]
        names = _names(text) if run is not None else None
        if run is not None and names is not None:
            entry = entries[run[1]] = _entry(run, found.calls)
            _add_values(found, entry, text, number, names)
            number += len(names)
        elif known is not None and text.startswith(b'["') and _count(text) == _STACK:
            known.stack = text
            found.stacks += 1
            number += 1
        else:
            for line in text.split(b"\n"):
                _add_line(found, line, number)
                number += 1
        at += len(text) + 1
    return found


def _names(lines: bytes) -> list[str] | None:
    """The names of lines with values; None where one of them is broken."""
    if len(lines) > MAX_ENTRY:
        return None
    return _decoded_names(lines) or _decoded_names(_plain(lines))


def _decoded_names(lines: bytes) -> list[str] | None:
    try:
        return [line[0] for line in _VALUES.decode_lines(lines)]
    except (ValueError, RecursionError):
        return None


def _plain(line: bytes) -> bytes:
    """A line with zeros for numbers that are not finite, which JSON does not have."""
    return line.replace(b"NaN", b"0").replace(b"-Infinity", b"0").replace(b"Infinity", b"0")


def _add_values(found: SortedLines, entry: _Entry, lines: bytes, number: int, names: list[str]) -> None:
    # Nearly all entries are one piece, and need no count of names.
    if entry.pieces or len(set(names)) < len(names):
        counts = entry.names
        if counts is None:
            counts = entry.names = Counter(name for _, line in numbered(entry.raw) for name in _names(line) or ())
        counts.update(names)
        found.repeated.update({printable(name): counts[name] for name in names if counts[name] > 1})
    found.values += len(names)
    entry.pieces.append(b"%d\t%b" % (number, lines))


def _add_line(found: SortedLines, line: bytes, number: int) -> None:
    """A stack, a line with other spaces, or a broken one."""
    match = _NAMED.match(line)
    if match is None:
        if line and not line.isspace():
            text = printable(line.strip()[:60].decode("utf-8", "replace"))
            wanted = f"expected {_WANTED}, with a name first, {_EXAMPLE}"
            found.broken.append(f"line {number}: found {text!r}, {wanted}")
        return
    _, prefix, _, _, direction, part, _ = match.groups()
    if prefix is None:
        found.broken.append(f"line {number}: found the name {_line_name(match)!r}, expected {_EXAMPLE}")
        return
    entry, count = _entry(match, found.calls), _count(line)
    if part == _STACK_INFO:
        entry.stack = line
        found.stacks += 1
    else:
        _add_values(found, entry, line.lstrip(), number, [_line_name(match)])
    if count != (_STACK if part == _STACK_INFO else VALUE) and (part == _STACK_INFO or direction == b"backward"):
        found.broken.append(f"line {number}, {_line_name(match)}: found {_elements_found(count)}, expected {_WANTED}")


def _entry(match: re.Match[bytes], calls: dict[bytes, _CallLines]) -> _Entry:
    """The entry of a line; a new one where it is the first."""
    name, namespace, api, number, direction = match.groups()[:5]
    stem = name[: name.rfind(b"_")]
    call = calls.get(stem)
    if call is None:
        full = b"%b.%b.%b" % (namespace, api, number)
        texts = sys.intern(namespace.decode("ascii")), sys.intern(api.decode("ascii"))
        call = calls[stem] = _CallLines(full.decode("ascii"), *texts, int(number))
    way: Direction = "forward" if direction == b"forward" else "backward"
    if way not in call.entries:
        call.entries[way] = _Entry()
    return call.entries[way]


def _line_name(match: re.Match[bytes]) -> str:
    """The name of a line."""
    return printable(b"_".join((match[1], match[6] + match[7])).decode("utf-8", "replace"))


def numbered(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines of an entry, each with its number in the file."""
    number = 0
    for line in raw.split(b"\n") if raw else ():
        digits, tab, text = line.partition(b"\t")
        if tab and digits.isdigit():
            number, line = int(digits), text
        yield number, line
        number += 1


def elements(line: bytes) -> list[object] | None:
    """The elements of a line, with numbers that are not finite as `lazy_json` quotes them; None where it is no JSON
    array."""
    try:
        decoded = msgspec.json.decode(line)
    except (ValueError, RecursionError):
        quoted = bytearray(line)
        raw_json.quote_tokens(quoted)
        try:
            decoded = msgspec.json.decode(quoted)
        except (ValueError, RecursionError):
            return None
    return decoded if isinstance(decoded, list) else None


def _count(line: bytes) -> int:
    """How many elements a line has; -1 where it is no JSON array."""
    if len(line) > MAX_ENTRY:
        return -1
    for prepare in (bytes, _plain):
        with suppress(ValueError, RecursionError):
            return len(_ELEMENTS.decode(prepare(line)))
    return -1


def wrong(line: bytes) -> tuple[str, str]:
    """What was found instead of a line with a value, and what was expected."""
    if len(line) > MAX_ENTRY:
        return f"a line of {len(line):,} bytes", f"at most {MAX_ENTRY:,}"
    found = elements(line)
    return _elements_found(-1 if found is None else len(found)), "a JSON array of 6 elements"


def _elements_found(count: int) -> str:
    return "no JSON" if count < 0 else f"{count} elements"


_MAX_LINE = 999_999_999  # more than any file has lines


class Stacks(Struct, frozen=True):
    """The frames of every entry, decoded at the call. Anything else is left out, and never an error."""

    calls: Mapping[str, Mapping[Direction, _Entry]]

    def __call__(self, entry: str) -> tuple[Frame, ...]:
        """The frames of an entry, innermost first; a backward entry has the frames of its forward."""
        name, _, direction = entry.rpartition(".")
        entries = self.calls.get(name, {})
        both = [entries[way].stack for way in ("backward", "forward") if way in entries]
        line = next(filter(None, both if direction == "backward" else both[-1:]), b"")
        decoded = elements(line) if line else None
        frames = decoded[1] if decoded is not None and len(decoded) == _STACK else None
        return tuple(frame for item in frames if (frame := _frame(item))) if isinstance(frames, list) else ()


def _frame(item: Any) -> Frame | None:
    """[file, line number as text, function, source line]"""
    if not (isinstance(item, list) and len(item) == 4 and all(isinstance(part, str) for part in (*item[:1], item[2]))):
        return None
    file, number, function, code = item
    if not (isinstance(number, str) and number.isascii() and number.isdecimal() and len(number) <= 9):
        return None
    return Frame(
        printable_line(file), min(int(number), _MAX_LINE), printable_line(function), printable(str(code).strip())
    )
