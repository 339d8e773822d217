"""What both ends say to each other: an entry of a dump with its tensors, or that a program has ended."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
import numpy as np
from msgspec import Meta, Struct, field

from pytest_probe.numerics.dtypes import dtype_name
from pytest_probe.system.files import open_regular
from pytest_probe.system.tensor_files import safetensors
from pytest_probe.system.tensor_files.base import NamedTensors

# Of the messages' form; ends of two versions do not understand each other.
VERSION = 1
# The name of the text in a file of safetensors.
_TEXT = "pytest_probe"
# What a dump's entry calls the file of its tensors: those of a call lie in one folder.
FILES = {direction: f"{direction}.safetensors" for direction in ("forward", "backward")}
_VERSION = msgspec.Raw(str(VERSION).encode())
_NAME = re.compile(r"[^/\\\0]{1,300}\.[0-9]{1,9}\.(forward|backward)")

_MAX_BODY = 1 << 24  # characters
_MAX_HEADER = 1 << 25  # bytes of a file, its tensors left out
_Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**53)]
_Run: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9a-f]{8}$")]
_Frames: TypeAlias = Annotated[list[Annotated[str, Meta(max_length=4096)]], Meta(max_length=1000)]


class Sender(Struct, frozen=True):
    """Who sends: a number that this process drew, its rank, and how many ranks send."""

    run: _Run
    rank: _Count
    ranks: Annotated[int, Meta(ge=1, le=2**62)]


class Entry(Struct, frozen=True, tag="entry"):
    """An entry of a dump. call counts the calls of this sender, from 0: forward and backward have the same number.
    body is its JSON, with bare NaN as dumps have it; header is the dump's, frames the stack's lines, innermost first.
    """

    sender: Sender
    step: _Count
    call: _Count
    name: Annotated[str, Meta(max_length=400)]
    body: Annotated[str, Meta(max_length=_MAX_BODY)]
    header: dict[str, Any]
    frames: _Frames = field(default_factory=list)

    @property
    def direction(self) -> str:
        return self.name.rpartition(".")[2]


class Goodbye(Struct, frozen=True, tag="goodbye"):
    """The program has ended, or sends no more. sent counts entries, left_out calls that the pace left out."""

    sender: Sender
    sent: _Count
    left_out: _Count


Message: TypeAlias = Entry | Goodbye
_T = TypeVar("_T")


class _Envelope(Struct, frozen=True):
    version: int
    message: Message


_encode = msgspec.json.Encoder(enc_hook=str).encode
_version = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class NoMessage(ValueError):
    """What came is no message that this release understands; the text says why."""


def decoded(content: bytes | str, kind: type[_T], name: str) -> _T:
    """What is of this version. Raises NoMessage, in which name is what came."""
    try:
        found = _version(content).get("version")
        if found == _VERSION:
            return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise NoMessage(f"{name} cannot be read ({error})") from None
    raise NoMessage(f"{name} is of another version, expected {VERSION}: install one release on both ends")


def encoded(message: Message, tensors: Mapping[str, np.ndarray] | None = None) -> list[Any]:
    """The parts of a message's file: bytes, and the memory of the tensors, whose dtypes the format has."""
    parts = {}
    for name, array in (tensors or {}).items():
        dense = np.ascontiguousarray(array)
        content = dense.reshape(-1).view(np.uint8).data if dense.nbytes else memoryview(b"")
        parts[name] = dtype_name(array.dtype), array.shape, content
    text = _encode(_Envelope(VERSION, message)).decode()
    return list(safetensors.written(parts, {_TEXT: text}))


def read(path: Path) -> Message:
    """The message of a file. Raises NoMessage, and OSError."""
    return opened(path)[0]


def opened(path: Path) -> tuple[Message, NamedTensors]:
    """The message of a file, and where its tensors are. Raises NoMessage, and OSError."""
    try:
        with open_regular(path) as file:
            content = safetensors.read(file, os.fstat(file.fileno()).st_size, _MAX_HEADER)
    except ValueError as error:
        raise NoMessage(str(error)) from None
    text = content.texts.get(_TEXT)
    if text is None:
        raise NoMessage(f"it has no text {_TEXT!r}")
    message = decoded(text, _Envelope, "its text").message
    if isinstance(message, Entry) and not _NAME.fullmatch(message.name):
        raise NoMessage("its entry has a name that no call has")
    return message, content
