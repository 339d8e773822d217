"""JSON files as large as dumps: members stay raw until they are needed, and bare NaN and Infinity are read.

json.dump writes NaN, Infinity and -Infinity as bare words, which JSON does not have and msgspec refuses. They are
turned into strings of the same length in place, so that no offset moves and nothing is copied; `TOKENS` turns those
strings back into numbers where a number is due.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import msgspec

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


def members(raw: msgspec.Raw) -> dict[str, msgspec.Raw]:
    """The members of a raw JSON object. Raises msgspec.ValidationError where it is something else."""
    with paused_gc():
        return _MEMBERS.decode(raw)


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
