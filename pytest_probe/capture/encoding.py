"""Entries as JSON."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import UNSET

from pytest_probe.capture.snapshot import BackwardEntry, ForwardEntry, Json, NamedEntry, seen_tensors, tuple_places

_encode = msgspec.json.Encoder(enc_hook=str).encode
# What may hold a tuple: looking for one in every leaf would cost as much as encoding it.
_NESTING = frozenset((list, tuple, dict))
# Most file systems take names of 255 bytes.
_LONGEST = 200


def encoded(entry: NamedEntry) -> bytes:
    """The body of an entry; one that JSON cannot hold says why in its place."""
    try:
        if type(entry.body) is ForwardEntry:
            _mark_tuples(entry.body)
        return _encode(entry.body)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        return _encode({"probe": {"failed": f"{type(error).__name__}: {error}"}})


def save_data(entry: NamedEntry, save: Callable[[Any, str], None]) -> None:
    """Give save every tensor of an entry that waits to be saved, and the name of its file."""
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
                seen.data_name = file_name(f"{entry.name}.{place}")
                save(seen.data, seen.data_name)
                seen.data = UNSET


def file_name(place: str) -> str:
    """The file of a tensor at a place. Modules and keys may have any names: what no file's name may hold is escaped,
    and the end of one that is too long becomes a checksum."""
    name = quote(place, safe=" ", errors="backslashreplace")
    if len(name) > _LONGEST:
        name = f"{name[:_LONGEST]}.{zlib.crc32(name.encode()):08x}"
    return f"{name}.pt"


def _mark_tuples(body: ForwardEntry) -> None:
    if body.input_args is UNSET or _NESTING.isdisjoint(map(type, (*body.input_args, *body.input_kwargs.values()))):
        return
    nesting = [(f"input.{index}", tree) for index, tree in enumerate(body.input_args) if type(tree) in _NESTING]
    nesting += [(f"kwargs.{key}", tree) for key, tree in body.input_kwargs.items() if type(tree) in _NESTING]
    found = [place for start, tree in nesting for place in tuple_places(tree, start)]
    if found:
        body.tell("tuples", found)
