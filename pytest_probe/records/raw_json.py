"""JSON whose values stay raw until they are decoded, in files as large as dumps, and what can be read of a damaged one.

json.dump writes NaN, Infinity and -Infinity as bare words, which JSON does not have and msgspec refuses. They are
turned into strings of the same length in place, so that no offset moves and nothing is copied; `TOKENS` turns those
strings back into numbers where a number is due.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from pytest_probe.errors import DumpError
from pytest_probe.system.archive import open_file
from pytest_probe.system.process import paused_gc

# As long as the bare words, quotes included, so that they fit in place.
TOKENS: Mapping[str, float] = {"N": float("nan"), "Infini": float("inf"), "-Infini": float("-inf")}

# Windows editors write it before UTF-8.
_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\n\r"
_MINUS = ord("-")
# By the length of the bare word.
_QUOTED = {3: b'"N"', 8: b'"Infini"', 9: b'"-Infini"'}
# Raw: a dump has 100,000 entries, of which a run may ask for ten.
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_bytes(path: Path) -> bytearray:
    """The whole file in one buffer; a byte order mark becomes spaces, so that offsets in the buffer and in the file are
    equal."""
    with open_file(path) as file:
        buffer = bytearray(file.seek(0, os.SEEK_END))
        file.seek(0)
        del buffer[file.readinto(buffer) :]  # type: ignore[attr-defined]
    if buffer.startswith(_BOM):
        buffer[: len(_BOM)] = b"   "
    return buffer


def without_mark(head: bytes) -> bytes:
    """The beginning of a file, a byte order mark as spaces."""
    return b"   " + head[len(_BOM) :] if head.startswith(_BOM) else head


def parse(buffer: bytearray) -> dict[str, msgspec.Raw]:
    """The members of the JSON object in a buffer, as views into it; bare tokens are quoted in place.

    Raises ValueError or RecursionError where the buffer holds no JSON object.
    """
    with paused_gc():
        try:
            return _MEMBERS.decode(buffer)
        except ValueError:
            quote_tokens(buffer)
            return _MEMBERS.decode(buffer)


def quote_tokens(buffer: bytearray) -> None:
    """Turn bare NaN, Infinity and -Infinity into the strings of `TOKENS`, in place.

    A word is bare where an even number of unescaped quotes precedes it; they are counted from word to word.
    """
    inside, counted = 0, 0
    quotes = buffer.count if b"\\" not in buffer else partial(_unescaped, buffer)
    for start, end in _words(buffer):
        inside ^= quotes(b'"', counted, start) & 1
        counted = end
        if not inside:
            start -= end - start > 3 and buffer[max(start - 1, 0)] == _MINUS  # a NaN has no sign
            buffer[start:end] = _QUOTED[end - start]


def _words(buffer: bytearray) -> Iterator[tuple[int, int]]:
    """The places of NaN and Infinity, in strings or bare, in order."""
    nan, infinity = buffer.find(b"NaN"), buffer.find(b"Infinity")
    while nan >= 0 or infinity >= 0:
        if infinity < 0 or 0 <= nan < infinity:
            yield nan, nan + 3
            nan = buffer.find(b"NaN", nan + 3)
        else:
            yield infinity, infinity + 8
            infinity = buffer.find(b"Infinity", infinity + 8)


def _unescaped(buffer: bytearray, character: bytes, start: int, end: int) -> int:
    """How often a character occurs unescaped; a backslash escapes the next character, also a backslash."""
    escaped = 0
    backslash = buffer.find(b"\\", start, end)
    while backslash >= 0:
        escaped += buffer[backslash + 1] == character[0]
        backslash = buffer.find(b"\\", backslash + 2, end)
    return buffer.count(character, start, end) - escaped


def is_complete(raw: msgspec.Raw, found: Mapping[str, msgspec.Raw]) -> bool:
    """Is the object exactly as long as its members say, spaced as the first two are?

    A repeated key leaves one member and the bytes of two, so True means that no key is repeated. False means nothing:
    spaces may vary, or a key may be longer in bytes than in characters.
    """
    if len(found) < 2:
        return False
    view = memoryview(raw)
    lead = _run(view, 1, _SPACE)
    first, value = next(iter(found.items()))
    colon_at = 1 + lead + len(first) + 2
    colon = _run(view, colon_at, _SPACE + b":")
    comma = _run(view, colon_at + colon + memoryview(value).nbytes, _SPACE + b",")
    # 256 bytes hold any indentation; beyond, the answer is False, which says nothing.
    end = bytes(view[-256:-1])
    tail = len(end) - len(end.rstrip(_SPACE))
    keys = sum(map(len, found)) + 2 * len(found)
    values = sum(memoryview(value).nbytes for value in found.values())
    return len(view) == 2 + lead + keys + colon * len(found) + values + comma * (len(found) - 1) + tail


def _run(view: memoryview, start: int, characters: bytes) -> int:
    """How many of these characters there are from start on."""
    window = bytes(view[start : start + 256])
    return len(window) - len(window.lstrip(characters))


# A slow, exact parser of a JSON object, member by member: for files that are damaged or hold a key twice.


# JSON's own blanks; \s knows more.
_SPACES = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder(parse_int=float)  # int() raises beyond 4300 digits
_NEVER = re.compile(r"(?!)")
# No option helps to read a damaged file.
ADVICE = "copy the file again, or repeat the capture"
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


class _Broken(Exception):
    """The text is no JSON at this offset. json's own error counts the lines before it, which takes quadratic time in a
    file with many holes."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


class Hole(Struct, frozen=True):
    """A place where the text is no JSON.

    offset is in bytes, line counts from 1; entry is the broken entry, last the whole one before it; each may be "".
    """

    offset: int
    line: int
    entry: str
    last: str


class Salvage(Struct):
    """What could be read of a damaged dump: the top-level values, the whole entries, the first hole, and how many."""

    header: dict[str, Any] = field(default_factory=dict)
    entries: dict[str, msgspec.Raw] = field(default_factory=dict)
    hole: Hole | None = None
    holes: int = 0


def repeated_keys(data: bytes) -> dict[str, int]:
    """The keys that an undamaged JSON object holds more than once, with their number."""
    text = _Text(data, _NEVER)
    counts: Counter[str] = Counter()
    at = text.skip(1)
    while text.expect(at, '"}') == '"':
        key, at = text.key(at)
        counts[key] += 1
        at = text.next_member(text.value(at)[1])
    return {key: count for key, count in counts.items() if count > 1}


def salvage(data: bytearray, entry: re.Pattern[str], under: str = "") -> Salvage:
    """Read what is whole in a damaged dump: every complete entry before, between and after the damage.

    entry matches how one begins, its key and the opening brace; under is the top-level key whose value holds
    the entries, "" where the top level holds them.
    """
    text, saved = _Text(data, entry), Salvage()
    key = ""
    try:
        at = text.skip(0)
        text.expect(at, "{")
        if not under:
            text.expect_end(_entries(text, saved, at))
            return saved
        at = text.skip(at + 1)
        while text.expect(at, '"}') == '"':
            key, at = text.key(at)
            if key == under and text.text[at : at + 1] == "{":
                end = _entries(text, saved, at)
            else:
                saved.header[key], end = text.value(at)
            at = text.next_member(end)
        text.expect_end(at + 1)
    except _Broken as error:
        if not saved.holes:
            _note(text, saved, error.offset, "", next(reversed(saved.entries), ""))
        # A hole before the entries hides the key that holds them; search for it.
        hidden = under and not saved.entries and key != under
        start = re.search(rf'"{under}"\s*:\s*(?=\{{)', text.text) if hidden else None
        if start:
            _entries(text, saved, start.end())
    return saved


class Loaded(Struct, frozen=True):
    """What a dump file holds: its other top-level values, its entries, notes on keys that occur several times, and what
    is damaged."""

    header: Mapping[str, Any]
    entries: Mapping[str, msgspec.Raw]
    notes: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()


def load(path: Path, entry: re.Pattern[str], under: str = "", content: bytearray | None = None) -> Loaded:
    """The entries of a dump file, of a damaged one the whole ones; entry and under are as `salvage` takes them,
    content is the file where it was read already. Raises DumpError where there is no entry, and OSError."""
    try:
        return _undamaged(path, read_bytes(path) if content is None else content, under)
    except (ValueError, RecursionError) as error:
        reason = str(error)
    # After the except block, whose traceback would keep the first buffer alive. Read again, because `quote_tokens` may
    # have changed bytes after the damage.
    with paused_gc():
        saved = salvage(read_bytes(path), entry, under)
    return Loaded(saved.header, saved.entries, damage=(_damage(path, saved, reason),))


def _undamaged(path: Path, content: bytearray, under: str) -> Loaded:
    top = parse(content)
    header: dict[str, Any] = {}
    if under:
        raw = top.pop(under, None)
        if raw is None:
            raise DumpError(path, f"has no entries: the key {under!r} is missing", ADVICE)
        header = {key: msgspec.json.decode(value) for key, value in top.items()}
        with paused_gc():
            entries = _MEMBERS.decode(raw)
    else:
        # A view, since a copy is as large as the file.
        raw, entries = msgspec.Raw(memoryview(content)[content.find(b"{") : content.rfind(b"}") + 1]), top
    repeated = {} if is_complete(raw, entries) else repeated_keys(bytes(raw))
    notes = (f"entry {name} occurs {count} times, the last one counts" for name, count in repeated.items())
    return Loaded(header, entries, tuple(notes))


def _damage(path: Path, saved: Salvage, reason: str) -> str:
    hole = saved.hole
    found = f"cannot be read as JSON ({reason})"
    if hole:
        found = f"is damaged or cut off at byte {hole.offset} (line {hole.line})"
        found += f", in entry {hole.entry}" if hole.entry else ""
        found += f", the first of {saved.holes} such places" if saved.holes > 1 else ""
    if not saved.entries:
        raise DumpError(path, f"{found}; no entry could be read", ADVICE)
    last = f"; the last good entry before is {hole.last}" if hole and hole.last else ""
    return f"{path}: {found}{last}; entries kept: {len(saved.entries)}; {ADVICE}"


class _Text:
    """JSON as text in which a character is a byte, so that offsets are offsets in the file."""

    def __init__(self, data: bytes | bytearray, entry: re.Pattern[str]) -> None:
        self.data = data
        self._begins = entry
        self.text = data.decode("latin-1")
        self._window = (0, len(self.text), self.text)
        self._entry = (0, -1)

    def skip(self, at: int) -> int:
        match = _SPACES.match(self.text, at)
        return match.end() if match else at

    def expect(self, at: int, characters: str) -> str:
        found = self.text[at : at + 1]
        if not found or found not in characters:
            raise _Broken(at)
        return found

    def expect_end(self, at: int) -> None:
        at = self.skip(at)
        if at < len(self.text):
            raise _Broken(at)

    def key(self, at: int) -> tuple[str, int]:
        """The key at a position, and where its value begins."""
        self.expect(at, '"')
        match = _STRING.match(self.text, at)
        if match is None:
            raise _Broken(at)
        try:
            name = msgspec.json.decode(self.data[at : match.end()], type=str)
        except ValueError:
            raise _Broken(at) from None
        at = self.skip(match.end())
        self.expect(at, ":")
        return name, self.skip(at + 1)

    def value(self, at: int, bound: int | None = None) -> tuple[Any, int]:
        """The value at a position, and where it ends. A bound keeps a broken value from running on."""
        base, text = self._cut(at, len(self.text) if bound is None else bound)
        try:
            value, end = _DECODER.raw_decode(text, at - base)
            return value, end + base
        except json.JSONDecodeError as error:
            raise _Broken(error.pos + base) from None
        except RecursionError:
            raise _Broken(at) from None

    def next_entry(self, at: int) -> int:
        """The offset of the next key that looks like an entry's, or the end of the text."""
        start, found = self._entry
        if not start <= at <= found:
            match = self._begins.search(self.text, at)
            found = match.start() if match else len(self.text)
            self._entry = (at, found)
        return found

    def _cut(self, at: int, bound: int) -> tuple[int, str]:
        """The text up to a bound, and its offset; values before one bound share a slice, lest slicing take quadratic
        time."""
        start, end, text = self._window
        if bound != end or at < start:
            start, text = at, self.text[at:bound]
            self._window = (start, bound, text)
        return start, text

    def next_member(self, at: int) -> int:
        """The offset of the next key or the closing brace; at is where a value ended."""
        at = self.skip(at)
        return self.skip(at + 1) if self.expect(at, ",}") == "," else at


def _entries(text: _Text, saved: Salvage, start: int) -> int:
    """Keep every whole entry of the object that begins at start; returns where it ends, or the end of the text."""
    at = text.skip(start + 1)
    while True:
        name, resume = "", at + 1
        try:
            if text.expect(at, '"}') == "}":
                if text.next_entry(at) == len(text.text):
                    return at + 1
                raise _Broken(at)
            name, at = text.key(at)
            # Up to the next entry at most, so that one broken value does not swallow those after it.
            end = text.value(at, text.next_entry(at))[1]
            entry = bytearray(text.data[at:end])
            quote_tokens(entry)
            saved.entries[name] = msgspec.Raw(bytes(entry))
            name, resume = "", end
            at = text.next_member(end)
        except _Broken as error:
            _note(text, saved, error.offset, name, next(reversed(saved.entries), ""))
            at = text.next_entry(resume)
            if at == len(text.text):
                return at


def _note(text: _Text, saved: Salvage, offset: int, entry: str, last: str) -> None:
    saved.holes += 1
    if saved.hole is None:
        saved.hole = Hole(offset, text.text.count("\n", 0, offset) + 1, entry, last)
