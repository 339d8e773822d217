"""The folder of --probe-cache: files by digest, of which the least recently used are removed first.

A file has the numbers of one case's reference side: bytes of arrays, each at a multiple of 64; then a list in JSON of
what they are; then the length of that list, its checksum and a mark. Nothing in it is run, and a file whose checksums
do not agree counts as missing.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
import uuid
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
from msgspec import Struct, field

from pytest_probe.check.reference_cache import CachedResult
from pytest_probe.features.cache.state import Witness
from pytest_probe.numerics.dtypes import AnyArray, dtype_name, numpy_dtype
from pytest_probe.system.files import open_regular

_MARK = b"probe-reference\0"
_TRAILER = struct.Struct("<QL")
# Bytes: each array of a file begins at a multiple, so that it can be used where it is mapped.
_ALIGNED = 64
# The whole ending marks a cache's part, so that no other file is taken for one.
_PART = ".reference.part"
# What a number is written as, and how it is read.
_PLAIN_TYPES: Mapping[str, tuple[type, Any]] = {
    "bool": (bool, lambda text: text == "True"),
    "int": (int, int),
    "float": (float, float),
    "complex": (complex, complex),
    "str": (str, str),
    "NoneType": (type(None), lambda _: None),
}
_SUFFIX = ".reference"
# Shares of the bound: what is written until the folder is counted again, since other processes write as well; and how
# much stays when it is full.
_COUNTED_AFTER, _LEFT = 1 / 64, 7 / 8
# Seconds after which a part belongs to a process that was killed.
ABANDONED = 3600.0


class _StoredArray(msgspec.Struct, frozen=True):
    """Where an array lies in the file. order says how its axes lie in memory, the outermost first: sums go that way."""

    dtype: str
    shape: tuple[int, ...]
    order: tuple[int, ...]
    offset: int
    checksum: int


class _StoredResult(msgspec.Struct, frozen=True):
    """Arrays and plain numbers by name, and other data as JSON."""

    arrays: dict[str, _StoredArray]
    plain: dict[str, tuple[str, str]]
    other: msgspec.Raw


class _Listed(msgspec.Struct, frozen=True):
    """The end of a file: results by their labels, and what has to hold for them to count."""

    results: dict[str, _StoredResult]
    witnesses: tuple[Witness, ...] = ()


class Entry:
    """A file that was read; numbers are looked at when they are asked for."""

    def __init__(self, content: mmap.mmap, listed: _Listed) -> None:
        self._content = content
        self._results = listed.results
        self.witnesses = listed.witnesses

    @classmethod
    def read(cls, path: Path) -> Entry | None:
        """The entry in a file; None where the file is missing, damaged or something else."""
        try:
            with open_regular(path) as file:
                # Copied where somebody writes to it: arrays are as others are.
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except (OSError, ValueError):
            return None
        end = len(content) - len(_MARK) - _TRAILER.size
        if end < 0 or content[-len(_MARK) :] != _MARK:
            return None
        length, checksum = _TRAILER.unpack(content[end : end + _TRAILER.size])
        listed = content[end - length : end] if length <= end else b""
        if zlib.crc32(listed) != checksum:
            return None
        try:
            return cls(content, msgspec.json.decode(listed, type=_Listed))
        except (msgspec.ValidationError, msgspec.DecodeError):
            return None

    def labels(self) -> tuple[str, ...]:
        return tuple(self._results)

    def result(self, label: str) -> CachedResult | None:
        """The numbers of this label; None without any, or damaged ones."""
        found = self._results.get(label)
        if found is None:
            return None
        try:
            arrays = {name: self._array(stored) for name, stored in found.arrays.items()}
            plain = {name: _PLAIN_TYPES[kind][1](text) for name, (kind, text) in found.plain.items()}
            return CachedResult({**arrays, **plain}, msgspec.json.decode(found.other))
        except (ValueError, TypeError, KeyError, msgspec.DecodeError):
            return None

    def _array(self, stored: _StoredArray) -> AnyArray:
        dtype = numpy_dtype(stored.dtype)
        count = int(np.prod(stored.shape, dtype=object)) if stored.shape else 1
        if stored.offset % _ALIGNED or not 0 <= stored.offset <= len(self._content) - count * dtype.itemsize:
            raise ValueError("beyond the file")
        flat = np.frombuffer(self._content, dtype, count, stored.offset)
        if zlib.crc32(flat.view(np.uint8).data) != stored.checksum:
            raise ValueError("damaged")
        return flat.reshape([stored.shape[axis] for axis in stored.order]).transpose(np.argsort(stored.order))


class Part(Struct):
    """A file while it is written, under a name that nobody reads."""

    path: Path
    file: BinaryIO
    listed: dict[str, _StoredResult] = field(default_factory=dict)
    witnesses: tuple[Witness, ...] = ()

    @classmethod
    def begun(cls, folder: Path) -> Part:
        """Raises OSError."""
        path = folder / f"{uuid.uuid4().hex}{_PART}"
        return cls(path, path.open("xb"))

    def add(self, label: str, kept: CachedResult) -> None:
        """Raises OSError, and TypeError for what has no place in a file."""
        arrays = {name: value for name, value in kept.values.items() if isinstance(value, np.ndarray)}
        others = {name: value for name, value in kept.values.items() if name not in arrays}
        plain = {name: (type(value).__name__, _text(value)) for name, value in others.items()}
        other = msgspec.Raw(msgspec.json.encode(kept.other))
        self.listed[label] = _StoredResult({name: self._write(each) for name, each in arrays.items()}, plain, other)

    def _write(self, array: AnyArray) -> _StoredArray:
        order = tuple(sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis])))
        content = np.ascontiguousarray(array.transpose(order)).reshape(-1).view(np.uint8).data
        self.file.write(b"\0" * (-self.file.tell() % _ALIGNED))
        stored = _StoredArray(dtype_name(array.dtype), array.shape, order, self.file.tell(), zlib.crc32(content))
        self.file.write(content)
        return stored

    @property
    def size(self) -> int:
        return self.file.tell()

    def finish(self, path: Path) -> None:
        """Complete the file, and rename it to path. Raises OSError."""
        listed = msgspec.json.encode(_Listed(self.listed, self.witnesses))
        self.file.write(listed + _TRAILER.pack(len(listed), zlib.crc32(listed)) + _MARK)
        self.file.close()
        os.replace(self.path, path)

    def discard(self) -> None:
        with suppress(OSError):  # whoever counts the folder removes it in time
            self.file.close()
            self.path.unlink(missing_ok=True)


def _text(value: Any) -> str:
    if type(value).__name__ not in _PLAIN_TYPES or type(value) is not _PLAIN_TYPES[type(value).__name__][0]:
        raise TypeError(f"a {type(value).__name__} has no place in a file")
    return value if isinstance(value, str) else repr(value)


class Folder(Struct):
    """Files of at most `size` bytes in all; several processes may use it at once."""

    path: Path
    size: int
    _total: int | None = field(default=None)
    _written: int = field(default=0)

    def entry(self, name: str) -> Entry | None:
        """The file of this name, which counts as used now; None without one, or a damaged one."""
        path = self._path(name)
        found = Entry.read(path)
        if found is not None:
            with suppress(OSError):  # gone meanwhile, or another user's
                os.utime(path)
        return found

    def keep(self, part: Part, name: str) -> None:
        """Give a part its name, where it fits into the bound. Raises OSError."""
        if part.size > self.size * _LEFT:
            part.discard()
            return
        part.finish(self._path(name))
        added = os.path.getsize(self._path(name))
        self._written += added
        self._total = None if self._total is None else self._total + added
        if self._total is None or self._total > self.size or self._written > self.size * _COUNTED_AFTER:
            # Count the folder, and remove what is too much.
            files = sorted(self._files())
            total = sum(size for _, size, _ in files)
            for _, size, path in files if total > self.size else ():
                if total <= self.size * _LEFT:
                    break
                total -= size if _removed(path) else 0
            self._total, self._written = total, 0

    def _path(self, name: str) -> Path:
        return self.path / f"{name}{_SUFFIX}"

    def _files(self) -> Iterator[tuple[float, int, str]]:
        """When each complete file was used, its size and its path; removes incomplete ones that nobody writes any
        more."""
        now = time.time()
        with os.scandir(self.path) as found:
            for each in found:
                if not each.name.endswith((_SUFFIX, _PART)):
                    continue
                try:
                    status = each.stat()
                except OSError:
                    continue  # removed by another process
                if each.name.endswith(_SUFFIX):
                    yield status.st_mtime, status.st_size, each.path
                elif now - status.st_mtime > ABANDONED:
                    _removed(each.path)


def _removed(path: str) -> bool:
    """Is the file gone? Some systems keep what a process has open."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
