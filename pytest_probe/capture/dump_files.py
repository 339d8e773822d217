"""The files of one step in msprobe's layout, with keys of our own: dump.json with its companions, and tensors.

dump.json can be read as a whole at every moment: new entries and new closing braces overwrite the old closing braces in
one call. The other files are written at the end of the step.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import UNSET

from pytest_probe.capture.snapshot import (
    BackwardEntry,
    ForwardEntry,
    Json,
    NamedEntry,
    Parent,
    Seen,
    backward_of,
    seen_tensors,
    tuple_places,
)
from pytest_probe.capture.writer import StepFiles
from pytest_probe.model.dump import TENSOR_FOLDER
from pytest_probe.system.files import write_whole

_encode = msgspec.json.Encoder(enc_hook=str).encode
# What may hold a tuple: looking for one in every leaf would cost as much as encoding it.
_NESTING = frozenset((list, tuple, dict))
# Most file systems take names of 255 bytes.
_LONGEST = 200
# "proc" or "rank", and a number.
_LONGEST_FOLDER = 24
_encode_plain = msgspec.json.Encoder().encode
# Closes the growing object and the file's; the next members are written over it.
_TAIL = b"\n}}\n"


def encode_entry(entry: NamedEntry) -> bytes:
    """The body of an entry; one that JSON cannot hold says why in its place."""
    try:
        if type(entry.body) is ForwardEntry:
            _mark_tuples(entry.body)
        return _encode(entry.body)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        return _encode({"probe": {"failed": f"{type(error).__name__}: {error}"}})


def waiting_tensors(entry: NamedEntry) -> Iterator[tuple[str, Seen]]:
    """The tensors of an entry that wait to be saved, by their places ("input.0")."""
    body = entry.body
    if type(body) is ForwardEntry:
        halves: dict[str, Json] = {"input": body.input_args, "kwargs": body.input_kwargs, "output": body.output}
        halves["parameters"] = body.parameters
    elif type(body) is BackwardEntry:
        halves = {"input": body.input, "output": body.output}
    else:
        halves = body
    for half, tree in halves.items():
        for place, seen in seen_tensors(tree, half):
            if seen.data is not UNSET:
                yield place, seen


def _mark_tuples(body: ForwardEntry) -> None:
    if body.input_args is UNSET or _NESTING.isdisjoint(map(type, (*body.input_args, *body.input_kwargs.values()))):
        return
    nesting = [(f"input.{index}", tree) for index, tree in enumerate(body.input_args) if type(tree) in _NESTING]
    nesting += [(f"kwargs.{key}", tree) for key, tree in body.input_kwargs.items() if type(tree) in _NESTING]
    found = [place for start, tree in nesting for place in tuple_places(tree, start)]
    if found:
        body.tell("tuples", found)


class GrowingFile:
    """A JSON object whose last member is an object that grows: after each `add` the file can be read as a whole.

    Every member comes with the closing braces, over those before it, in one write: a process that is killed leaves
    whole members. Raises OSError; what was there before a failure stays and is closed.
    """

    def __init__(self, path: Path, header: dict[str, Any], growing: str) -> None:
        self.path = path
        self._file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), 0o644)
        self._end = 0
        self._write(_head(header, growing))
        self._empty = True

    def add(self, members: list[tuple[str, bytes]]) -> None:
        """Append members: names, and values as JSON."""
        text = b",\n".join(b"%b: %b" % (_encode_plain(name), body) for name, body in members)
        self._write((b"\n" if self._empty else b",\n") + text)
        self._empty = False

    def _write(self, data: bytes) -> None:
        whole = data + _TAIL
        try:
            done = 0
            while done < len(whole):
                done += os.pwrite(self._file, whole[done:], self._end + done)
        except OSError:
            os.ftruncate(self._file, self._end + len(_TAIL) if self._end else 0)
            if self._end:
                os.pwrite(self._file, _TAIL, self._end)
            raise
        self._end += len(data)

    def close(self) -> None:
        os.close(self._file)


def _head(header: dict[str, Any], growing: str) -> bytes:
    """The file's text up to its entries; of one length whatever number the folder of the data has."""
    text = json.dumps(header, ensure_ascii=False).removesuffix("}").encode()
    folder = Path(header.get("dump_data_dir") or "").parent.name
    return text + b" " * max(0, _LONGEST_FOLDER - len(folder)) * bool(folder) + f', "{growing}": {{'.encode()


def write_json(path: Path, content: Any) -> None:
    """Write a file as a whole. Raises OSError."""
    try:
        text = _encode_plain(content)
    except UnicodeEncodeError:  # names of files may hold bytes that are no text
        text = json.dumps(content, ensure_ascii=False).encode(errors="backslashreplace")
    write_whole(path, text)


class DumpFiles(StepFiles):
    """dump.json is whole after every write; the others are written at the end. data: tensors are saved next to it."""

    def __init__(self, header: dict[str, Any], *, data: bool, suffix: str = ".pt") -> None:
        self._header = header
        self._suffix = suffix
        self._data = data
        self._stacks: dict[int, list[str]] = {}
        self._parents: dict[str, Parent] = {}

    def open(self, folder: Path) -> None:
        super().open(folder)
        self._place(folder)
        self._dump = GrowingFile(folder / "dump.json", self._header, "data")

    def _place(self, folder: Path) -> None:
        self._folder = folder
        if self._data:
            self._header["dump_data_dir"] = str(folder / TENSOR_FOLDER)

    def add(self, entries: Sequence[NamedEntry], save: Callable[[Any, str], None]) -> None:
        for entry in entries if self._data else ():
            for place, seen in waiting_tensors(entry):
                # Modules and keys may have any names: what no file's name may hold is escaped, and the end of one that
                # is too long becomes a checksum.
                name = quote(f"{entry.name}.{place}", safe=" ", errors="backslashreplace")
                if len(name) > _LONGEST:
                    name = f"{name[:_LONGEST]}.{zlib.crc32(name.encode()):08x}"
                seen.data_name = name + self._suffix
                save(seen.data, f"{TENSOR_FOLDER}/{seen.data_name}")
                seen.data = UNSET
        self._dump.add([(entry.name, encode_entry(entry)) for entry in entries])
        for entry in entries:
            if entry.parent is not UNSET:
                self._parents[entry.name] = entry.parent
            if entry.where >= 0:
                self._stacks.setdefault(entry.where, []).append(entry.name)

    def close(self) -> None:
        self._dump.close()

    def moved(self, folder: Path) -> None:
        self._place(folder)
        with open(folder / "dump.json", "r+b") as file:
            file.write(_head(self._header, "data"))

    def end(self, frames: Mapping[int, list[str]]) -> int:
        shown = {str(index): [names, frames.get(index, [])] for index, names in self._stacks.items()}
        # A module may have no entry, for example one through which no gradients went: then its children get that
        # module's parent.
        parents: dict[str, Parent] = {}
        for name, parent in self._parents.items():
            while isinstance(parent, str) and parent not in self._parents:
                forward = ".forward.".join(parent.rsplit(".backward.", 1))
                parent = backward_of(self._parents.get(forward))
            parents[name] = parent
        write_json(self._folder / "stack.json", shown)
        write_json(self._folder / "construct.json", parents)
        return sum((self._folder / name).stat().st_size for name in ("dump.json", "stack.json", "construct.json"))
