"""The dumps of PaddleAPEX: forward_rank*.json with the files of tensors beside it."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import msgspec

from pytest_probe.model.dump import Dump, Frame, Record
from pytest_probe.records import lazy_json, salvage
from pytest_probe.records.paddleapex.entries import decode, has_backward
from pytest_probe.system.process import paused_gc
from pytest_probe.system.text import printable_line

# "paddle.nn.functional.linear*3": the API's own name, and the number of its call. Bounded: what is no key of such a
# file may be any text.
_KEY = r'"[^"\\*\s.]{1,100}\.[^"\\*\s]{1,300}\*\d{1,18}"\s*:\s*'
_FIRST = re.compile(rb"\s*\{\s*" + _KEY.encode())
_ENTRY = re.compile(_KEY + r"\{")
_WITH_ARGUMENTS = re.compile(_KEY.encode() + rb'\{\s*"args"')
# 19 digits may be more than an int64; a zero before them would make one name of two keys.
_NUMBER = re.compile(r"0|[1-9]\d{0,17}", re.ASCII)
_UNNAMED = "entries with a name that is no API call"
# A file that holds all records of a rank, and those that hold a part of them each.
_PART = re.compile(r"(forward_rank\d+)_(?:half|other)(\.json(?:\.gz)?)")


class PaddleApexReader:
    """Reads what PaddleAPEX writes, with Paddle 2 or 3. Entries stay raw until they are decoded."""

    name = "paddleapex"

    def sniff(self, path: Path, head: bytes) -> bool:
        """Is this a JSON object with keys as "paddle.add*0"?"""
        text = lazy_json.without_mark(head)
        return bool(_FIRST.match(text)) or (text.lstrip().startswith(b"{") and bool(_WITH_ARGUMENTS.search(text)))

    def read(self, path: Path) -> Dump:
        """Read the dump. Raises DumpError where no entry can be found in it."""
        entries, notes, damage, stored = _load(path)
        skipped: Counter[str] = Counter()
        with paused_gc():
            records = tuple(_records(entries, skipped))
        return Dump(
            path=path,
            framework="paddle",
            task="tensor" if stored else "statistics",
            level="",
            records=records,
            decode=partial(decode, path),
            stack=_no_frames,
            data_dirs=(path.parent,),
            fields={"input": "args", "kwargs": "kwargs", "grad": "dout_list"},
            notes=tuple(notes),
            damage=damage,
            skipped=dict(skipped),
        )


def without_parts(files: Iterable[Path]) -> list[Path]:
    """The files but for those whose records another one holds too: `_half` and `_other` of an `_all`."""
    files = list(files)
    found = set(files)
    return [file for file in files if whole_of(file) not in found]


def whole_of(file: Path) -> Path | None:
    """The file that holds all records of which this one, by its name, holds a part; None where it is no part."""
    part = _PART.fullmatch(file.name)
    return file.with_name(f"{part[1]}_all{part[2]}") if part else None


def _no_frames(entry: str) -> tuple[Frame, ...]:
    """PaddleAPEX writes no stack."""
    return ()


def _load(path: Path) -> tuple[Mapping[str, msgspec.Raw], list[str], tuple[str, ...], bool]:
    """Entries, notes and damage of a dump file, and whether it names files of tensors."""
    buffer = lazy_json.read_bytes(path)
    stored = b'"real_data_path"' in buffer
    try:
        entries = lazy_json.parse(buffer)
        return entries, _repetitions(buffer, entries), (), stored
    except (ValueError, RecursionError) as error:
        reason = str(error)
    # Read anew, since quoting goes wrong behind the damage.
    with paused_gc():
        saved = salvage.salvage(lazy_json.read_bytes(path), _ENTRY)
    return saved.entries, [], (salvage.damage(path, saved, reason),), stored


def _repetitions(buffer: bytearray, entries: Mapping[str, msgspec.Raw]) -> list[str]:
    # Views, since a copy is as large as the file.
    whole = memoryview(buffer)[buffer.find(b"{") : buffer.rfind(b"}") + 1]
    if lazy_json.is_complete(msgspec.Raw(whole), entries):
        return []
    repeated = salvage.repeated_keys(bytes(whole))
    return [f"entry {name} occurs {count} times, the last one counts" for name, count in repeated.items()]


def _records(entries: Mapping[str, msgspec.Raw], skipped: Counter[str]) -> Iterator[Record]:
    for key, raw in entries.items():
        api, star, number = key.rpartition("*")
        namespace, dot, name = api.partition(".")
        if not (star and dot and namespace and name and _NUMBER.fullmatch(number)):
            skipped[_UNNAMED] += 1
            continue
        full, namespace, name = map(printable_line, (f"{api}.{number}", namespace, name))
        backward = raw if has_backward(name, raw) else None
        yield Record(full, sys.intern(namespace), sys.intern(name), int(number), raw, backward)
