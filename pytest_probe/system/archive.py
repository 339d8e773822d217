"""Files inside archives: `run.zip/step0/dump.json` is a path like any other, and nothing is unpacked into a folder.

An archive comes from others: names that lead out of it are refused, links are not followed, and what it unpacks to is
counted before it is taken.
"""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

from msgspec import Struct

from pytest_probe.system import files
from pytest_probe.system.tensor_files.torch_zip import first_pickle

_Kind = Literal["zip", "tar", "gzip", ""]
_GZIP, _ZIP, _TAR = b"\x1f\x8b", (b"PK\x03\x04", b"PK\x05\x06"), slice(257, 262)
_MEMBERS = 1 << 20
_BLOCK = 1 << 20
# Bytes that a file of a small archive may unpack to, a whole small archive, and how many times its own size a larger
# one: what training writes is packed to a hundredth at most.
_SMALL, _SPOOLED, _TIMES = 256 << 20, 1 << 30, 200
_DAMAGED = (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, NotImplementedError, ValueError, RuntimeError)
_UNPACK = "unpack it and give the folder"


class _Member(Struct, frozen=True):
    """Unpacked size in bytes; offset is the first byte where the archive is a tar; refused says why it is not read."""

    size: int
    offset: int = 0
    refused: str = ""


class _Archive(Protocol):
    @property
    def members(self) -> Mapping[str, _Member]: ...

    def read(self, name: str) -> bytes:
        """The content of a member that is not refused."""


def kind(path: Path) -> _Kind:
    """What the content of this file is. Raises OSError."""
    with files.open_regular(path) as file:
        head = file.read(512)
    if head.startswith(_ZIP):
        return "" if first_pickle(head) else "zip"  # a file of torch.save's, which holds no files
    if head.startswith(_GZIP):
        with files.open_regular(path) as file:
            return "tar" if _prefix(file, 512)[_TAR] == b"ustar" else "gzip"
    return "tar" if head[_TAR] == b"ustar" else ""


def is_archive(path: Path) -> bool:
    """Does this file hold others?"""
    try:
        return kind(path) in ("zip", "tar")
    except OSError:
        return False


def split(path: Path) -> tuple[Path, str] | None:
    """The archive that this path leads into, and the name in it with "/" between; None for a path outside of one."""
    if os.path.lexists(path):
        return None
    for parent in path.parents:
        if os.path.lexists(parent):
            inside = os.path.isfile(parent) and is_archive(parent)
            return (parent, path.relative_to(parent).as_posix()) if inside else None
    return None


def names(path: Path) -> list[str]:
    """The names of all files in an archive. Raises OSError."""
    return list(_archive(path).members)


def list_folder(folder: Path) -> list[str]:
    """The names that a folder inside an archive holds; none where it is no such folder."""
    place = (folder, "") if os.path.isfile(folder) and is_archive(folder) else split(folder)
    if place is None:
        return []
    prefix = f"{place[1]}/" if place[1] else ""
    return list({name[len(prefix) :].partition("/")[0] for name in names(place[0]) if name.startswith(prefix)})


def is_file(path: Path) -> bool:
    place = split(path)
    return path.is_file() if place is None else place[1] in _archive(place[0]).members


def is_folder(path: Path) -> bool:
    return path.is_dir() or (split(path) is not None and bool(list_folder(path)))


def size(path: Path) -> int:
    """Bytes of a file, unpacked where it lies in an archive. Raises OSError."""
    place = split(path)
    return path.stat().st_size if place is None else _archive(place[0]).members[place[1]].size


def head(path: Path, count: int) -> bytes:
    """The first bytes of what `opened` gives. Raises OSError."""
    place = split(path)
    if place is not None:
        return _read(path, *place)[:count]
    with files.open_regular(path) as file:
        start = file.read(count)
        file.seek(0)
        return _prefix(file, count) if start.startswith(_GZIP) else start


def open_file(path: Path) -> BinaryIO:
    """The file, open for reading: on the disk, unpacked where gzip packed it, or of an archive. Raises OSError."""
    place = split(path)
    if place is not None:
        return BytesIO(_read(path, *place))
    file = files.open_regular(path)
    if file.read(2) != _GZIP:
        file.seek(0)
        return file
    allowed = _allowed(path)
    with file:
        file.seek(0)
        content = _prefix(file, allowed + 1)
    if len(content) > allowed:
        raise _error(path, f"it unpacks to more than {allowed:,} bytes; {_UNPACK}")
    return BytesIO(content)


def _read(path: Path, archive: Path, name: str) -> bytes:
    held = _archive(archive)
    member = held.members.get(name)
    if member is None:
        raise FileNotFoundError(errno.ENOENT, "there is no such file in the archive", str(path))
    if member.refused:
        raise _error(path, member.refused)
    if member.size > _allowed(archive):
        raise _error(path, f"it unpacks to {member.size:,} bytes, more than an archive of this size may; {_UNPACK}")
    try:
        return held.read(name)
    except _DAMAGED as error:
        raise _error(path, f"the archive is damaged: {error}") from error


def _prefix(file: BinaryIO, count: int) -> bytes:
    """The first bytes that gzip packed, fewer where the file ends before."""
    parts, left = [], count
    with gzip.GzipFile(fileobj=file) as packed:
        try:
            while left and (block := packed.read1(min(left, _BLOCK))):
                parts.append(block)
                left -= len(block)
        except EOFError:
            pass
        except (gzip.BadGzipFile, zlib.error) as error:
            raise OSError(errno.EINVAL, f"the gzip file is damaged: {error}") from error
    return b"".join(parts)


def _allowed(path: Path) -> int:
    return max(_SMALL, _TIMES * path.stat().st_size)


def _archive(path: Path) -> _Archive:
    state = path.stat()
    return _opened_archive(path, state.st_mtime_ns, state.st_size)


# Opened once a process: a packed tar is read from its beginning to its end for any file of it.
@lru_cache(maxsize=16)
def _opened_archive(path: Path, _changed: int, _size: int) -> _Archive:
    try:
        return _Zip(path) if kind(path) == "zip" else _Tar(path)
    except _DAMAGED as error:
        raise _error(path, f"the archive is damaged: {error}") from error


class _Zip:
    def __init__(self, path: Path) -> None:
        self._file = zipfile.ZipFile(path)
        entries = [entry for entry in self._file.infolist() if not entry.is_dir()]
        # Names as they are written: zipfile itself changes a name that leads out of the archive.
        self.members = _checked(path, ((entry.orig_filename, _zip_member(entry)) for entry in entries))
        self._entries = {_plain(entry.orig_filename): entry for entry in entries}

    def read(self, name: str) -> bytes:
        return self._file.read(self._entries[name])


def _zip_member(entry: zipfile.ZipInfo) -> _Member:
    refused = "it is a link, and links in archives are not followed" if stat.S_ISLNK(entry.external_attr >> 16) else ""
    if entry.flag_bits & 1:
        refused = f"it is encrypted; {_UNPACK}"
    return _Member(entry.file_size, 0, refused)


class _Tar:
    """The unpacked stream lies in a file without a name, which ends with the process, however that ends."""

    def __init__(self, path: Path) -> None:
        self._file = _stream(path)
        self.members = _checked(path, _tar_members(self._file))

    def read(self, name: str) -> bytes:
        member = self.members[name]
        self._file.seek(member.offset)
        content = self._file.read(member.size)
        if len(content) < member.size:
            raise EOFError("it ends too early")
        return content


def _stream(path: Path) -> BinaryIO:
    source = files.open_regular(path)
    packed = source.read(2) == _GZIP
    source.seek(0)
    if not packed:
        return source
    allowed = min(max(_SPOOLED, _TIMES * path.stat().st_size), shutil.disk_usage(tempfile.gettempdir()).free // 2)
    unpacked: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115
    with source, gzip.GzipFile(fileobj=source) as content:
        while block := content.read(_BLOCK):
            if unpacked.tell() + len(block) > allowed:
                unpacked.close()
                raise _error(path, f"it unpacks to more than {allowed:,} bytes; {_UNPACK}")
            unpacked.write(block)
    unpacked.seek(0)
    return unpacked


def _tar_members(file: BinaryIO) -> Iterator[tuple[str, _Member]]:
    with tarfile.open(fileobj=file, mode="r:") as tar:
        while entry := tar.next():
            tar.members = []  # type: ignore[attr-defined]  # it would keep every header
            if entry.isreg() and not entry.issparse():
                yield entry.name, _Member(entry.size, entry.offset_data)
            elif not entry.isdir():
                yield entry.name, _Member(0, 0, "it is a link or a special file, which are not read from archives")


def _checked(path: Path, found: Iterator[tuple[str, _Member]]) -> dict[str, _Member]:
    """The members by their names. Raises OSError where one leads out of the archive, or there are too many."""
    members: dict[str, _Member] = {}
    for name, member in found:
        parts = name.split("/")
        if name.startswith("/") or ".." in parts or "\\" in name or ":" in parts[0] or not name.isprintable():
            raise _error(path, f"the archive holds the name {name!r}, which leads out of it or cannot be shown")
        members[_plain(name)] = member
        if len(members) > _MEMBERS:
            raise _error(path, f"the archive holds more than {_MEMBERS:,} files; {_UNPACK}")
    return members


def _plain(name: str) -> str:
    return "/".join(part for part in name.split("/") if part not in ("", "."))


def _error(path: Path, problem: str) -> OSError:
    return OSError(errno.EINVAL, problem, str(path))
