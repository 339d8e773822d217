"""The dumps of msprobe for PyTorch: dump.json with its stack.json and dump_tensor_data, versions 1.0 to 26.2."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from pytest_probe.errors import DumpError
from pytest_probe.model.dump import TENSOR_FOLDER, Dump, Record
from pytest_probe.records import lazy_json, salvage
from pytest_probe.records.fields import quoted
from pytest_probe.records.msprobe.construct import ConstructFile
from pytest_probe.records.msprobe.entries import decode, gradients
from pytest_probe.records.msprobe.stack import StackFile
from pytest_probe.records.msprobe.statistics import STATISTICS
from pytest_probe.system import archive
from pytest_probe.system.process import paused_gc
from pytest_probe.system.text import printable_line

# Others are read all the same, with a note: what they mean is not known.
READ_TASKS = ("statistics", "tensor", "structure", "overflow_check", "acc_check")
READ_LEVELS = ("L0", "L1", "L2", "mix", "debug")

# Top-level keys that are known; of others there is a note.
_KEYS = ("task", "level", "framework", "dump_data_dir", "data", "probe")
_OTHER = {"forward": "backward", "backward": "forward"}
# What is counted under these words are entries whose names do not end in a number and a direction.
_UNNAMED = "entries with a name that is no API call"
# Any JSON may have a key "data": the header, or an entry's name, must be there too.
_DATA = re.compile(rb'"data"\s*:\s*\{')
_TASK, _LEVEL = re.compile(rb'"task"\s*:'), re.compile(rb'"level"\s*:')
# How an entry of an API or a module begins: its key and the opening brace.
_ENTRY = re.compile(r'"[^"\\\s]+\.(?:forward|backward|parameters_grad)(?:\.\d+)?"\s*:\s*\{')
_ENTRY_BYTES = re.compile(_ENTRY.pattern.encode())
_NAMED = "--probe-data-dir=DIR names a folder of tensors that may lie anywhere"


class MsprobeReader:
    """Reads dump.json as every version of msprobe writes it. Entries stay raw until they are decoded."""

    name = "msprobe"

    def sniff(self, path: Path, head: bytes) -> bool:
        """Is this a JSON object with entries under "data"?"""
        start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
        return start == b"{" and bool(_DATA.search(head)) and bool(_has_header(head) or _ENTRY_BYTES.search(head))

    def read(self, path: Path) -> Dump:
        """Read the dump. Raises DumpError where no entry can be found in it."""
        header, entries, notes, damage = _load(path)
        skipped: Counter[str] = Counter()
        with paused_gc():
            records = tuple(_records(entries, skipped))
        if skipped[_UNNAMED]:
            first = next(name for name in entries if not (_skip_kind(name) or _split(name)))
            notes.append(f"{_UNNAMED}: {skipped[_UNNAMED]}, the first is {first!r}")
        return Dump(
            path=path,
            framework=_text(header, "framework", "pytorch", notes),
            task=_text(header, "task", "", notes, READ_TASKS),
            level=_text(header, "level", "", notes, READ_LEVELS),
            records=records,
            decode=partial(decode, path, ours="probe" in header),
            stack=StackFile(path.with_name("stack.json")),
            modules=ConstructFile(path.with_name("construct.json")),
            observed=partial(gradients, path),
            data_dirs=_data_dirs(path, header.get("dump_data_dir"), notes),
            notes=(*notes, *(f"unknown top-level key {key!r}" for key in header if key not in _KEYS)),
            damage=damage,
            skipped=dict(skipped),
            statistics=STATISTICS,
        )


def _has_header(head: bytes) -> bool:
    task = _TASK.search(head)
    return task is not None and _LEVEL.search(head, task.end()) is not None


def _load(path: Path) -> tuple[dict[str, Any], dict[str, msgspec.Raw], list[str], tuple[str, ...]]:
    """Header, entries, notes and damage of a dump file."""
    try:
        return *_whole(path), ()
    except (ValueError, RecursionError) as error:
        reason = str(error)
    return _salvage(path, reason)  # out there, where the traceback no longer holds the first buffer


def _whole(path: Path) -> tuple[dict[str, Any], dict[str, msgspec.Raw], list[str]]:
    """Header, entries and notes of an undamaged dump file."""
    top = lazy_json.parse(lazy_json.read_bytes(path))
    raw = top.pop("data", None)
    if raw is None:
        raise DumpError(path, "has no entries: the key 'data' is missing", salvage.ADVICE)
    entries = lazy_json.members(raw)
    header = {key: msgspec.json.decode(value) for key, value in top.items()}
    return header, entries, _repetitions(raw, entries)


def _repetitions(raw: msgspec.Raw, entries: Mapping[str, msgspec.Raw]) -> list[str]:
    if lazy_json.is_complete(raw, entries):
        return []
    repeated = salvage.repeated_keys(bytes(raw))
    return [f"entry {name} occurs {count} times, the last one counts" for name, count in repeated.items()]


def _salvage(path: Path, reason: str) -> tuple[dict[str, Any], dict[str, msgspec.Raw], list[str], tuple[str, ...]]:
    """What is whole in a file that is no JSON; it is read anew, since quoting goes wrong behind the damage."""
    with paused_gc():
        saved = salvage.salvage(lazy_json.read_bytes(path), _ENTRY, "data")
    return saved.header, saved.entries, [], (salvage.damage(path, saved, reason),)


def _records(entries: Mapping[str, msgspec.Raw], skipped: Counter[str]) -> Iterator[Record]:
    """The records in the order of their first entries; what is no API call is counted."""
    paired: set[str] = set()
    for entry, raw in entries.items():
        kind = _skip_kind(entry)
        parts = None if kind else _split(entry)
        if parts is None:
            skipped[kind or _UNNAMED] += 1
            continue
        name, direction, namespace, api, number = parts
        other = entries.get(f"{name}.{_OTHER[direction]}")
        if other is not None:
            # The record was made where its first entry stood.
            if name in paired:
                continue
            paired.add(name)
        forward, backward = (raw, other) if direction == "forward" else (other, raw)
        name, namespace, api = map(printable_line, (name, namespace, api))
        yield Record(name, sys.intern(namespace), sys.intern(api), number, forward, backward)


def _skip_kind(entry: str) -> str:
    """The kind of an entry that describes a module and no API call ("" for any other)."""
    if not entry.startswith(("Module.", "Cell.")):
        return ""
    gradients = entry.endswith(".parameters_grad") or entry.rpartition(".")[0].endswith(".parameters_grad")
    return "parameters_grad entries" if gradients else f"{entry.partition('.')[0]} entries"


def _split(entry: str) -> tuple[str, str, str, str, int] | None:
    """Name, direction, namespace, API and call number; only the last two parts are number and direction."""
    name, _, direction = entry.rpartition(".")
    left, _, number = name.rpartition(".")
    namespace, _, api = left.partition(".")
    if direction not in _OTHER or not namespace or not api:
        return None
    # 19 digits may be more than an int64.
    if not (number.isascii() and number.isdecimal() and len(number) < 19):
        return None
    return name, direction, namespace, api, int(number)


def _text(header: Mapping[str, Any], key: str, default: str, notes: list[str], known: tuple[str, ...] = ()) -> str:
    value = header.get(key, default)
    if not isinstance(value, str):
        taken = f"; taken as {default}" if default else ""
        notes.append(f"{key} is {quoted(value)}, expected a string{taken}")
        return default
    if known and value not in known:
        notes.append(f"unknown {key} {value!r}, known are {', '.join(known)}" if value else f"{key} is missing")
    return value


def _data_dirs(path: Path, recorded: object, notes: list[str]) -> tuple[Path, ...]:
    """Where tensor files are looked up: beside the dump, so that it can be moved, then where they were written. Only in
    the dump's folder: a dump is not to choose what is read."""
    beside = path.parent / TENSOR_FOLDER
    if not isinstance(recorded, str) or "\0" in recorded or not Path(recorded).is_absolute():
        # A relative path would lead anywhere, depending on where the run starts.
        return (beside,)
    try:
        inside = Path(recorded).resolve().is_relative_to(path.parent.resolve())
    except (OSError, RuntimeError):  # a name too long, a loop of links
        inside = False
    if inside:
        return tuple(dict.fromkeys((beside, Path(recorded))))
    if not archive.is_folder(beside):
        notes.append(f"dump_data_dir {recorded!r} is outside the dump's folder, so it is not read; {_NAMED}")
    return (beside,)
