"""Files inside zips: `run.zip/step0/dump.json` is a path like any other, and nothing is unpacked into a folder.

An archive comes from others: names that lead out of it are refused, links are not followed, and what it unpacks to is
counted before it is taken.
"""

from __future__ import annotations

import errno
import gzip
import os
import stat
import zipfile
import zlib
from collections.abc import Mapping
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Literal

from pytest_probe.system import files
from pytest_probe.system.tensor_files.torch_zip import first_pickle

_Kind = Literal["zip", "tar", "gzip", ""]
_GZIP, _ZIP, _TAR = b"\x1f\x8b", (b"PK\x03\x04", b"PK\x05\x06"), slice(257, 262)
_MEMBERS = 1 << 20
_BLOCK = 1 << 20
# Bytes that a file of a small archive may unpack to, and how many times its own size one of a larger archive: what
# training writes is packed to a hundredth at most.
_SMALL, _TIMES = 256 << 20, 200
_DAMAGED = (zipfile.BadZipFile, EOFError, zlib.error, NotImplementedError, ValueError, RuntimeError)
_UNPACK = "unpack it and give the folder"


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
    return list(_archive(path)[1])


def list_folder(folder: Path) -> list[str]:
    """The names that a folder inside an archive holds; none where it is no such folder."""
    place = (folder, "") if os.path.isfile(folder) and is_archive(folder) else split(folder)
    if place is None:
        return []
    prefix = f"{place[1]}/" if place[1] else ""
    return list({name[len(prefix) :].partition("/")[0] for name in names(place[0]) if name.startswith(prefix)})


def is_file(path: Path) -> bool:
    place = split(path)
    return path.is_file() if place is None else place[1] in _archive(place[0])[1]


def is_folder(path: Path) -> bool:
    return path.is_dir() or (split(path) is not None and bool(list_folder(path)))


def size(path: Path) -> int:
    """Bytes of a file, unpacked where it lies in an archive. Raises OSError."""
    place = split(path)
    return path.stat().st_size if place is None else _archive(place[0])[1][place[1]].file_size


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
    file, members = _archive(archive)
    member = members.get(name)
    if member is None:
        raise FileNotFoundError(errno.ENOENT, "there is no such file in the archive", str(path))
    if stat.S_ISLNK(member.external_attr >> 16):
        raise _error(path, "it is a link, and links in archives are not followed")
    if member.flag_bits & 1:
        raise _error(path, f"it is encrypted; {_UNPACK}")
    if member.file_size > _allowed(archive):
        raise _error(
            path, f"it unpacks to {member.file_size:,} bytes, more than an archive of this size may; {_UNPACK}"
        )
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _error(path, f"it is packed in another way than by deflate; {_UNPACK}")
    try:
        with file.open(member) as content:
            return content.read(member.file_size)  # without the number zipfile unpacks more, and then cuts it off
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


def _archive(path: Path) -> tuple[zipfile.ZipFile, Mapping[str, zipfile.ZipInfo]]:
    """A zip, opened once a process, and its files by their names. Raises OSError."""
    state = path.stat()
    return _opened_archive(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=16)
def _opened_archive(path: Path, _changed: int, _size: int) -> tuple[zipfile.ZipFile, Mapping[str, zipfile.ZipInfo]]:
    if kind(path) == "tar":
        raise _error(path, f"it is a tar, and of archives only zips are read; {_UNPACK}")
    try:
        file = zipfile.ZipFile(path)
    except _DAMAGED as error:
        raise _error(path, f"the archive is damaged: {error}") from error
    members: dict[str, zipfile.ZipInfo] = {}
    for entry in (each for each in file.infolist() if not each.is_dir()):
        # As it is written: zipfile itself changes a name that leads out of the archive.
        name = entry.orig_filename
        parts = name.split("/")
        if name.startswith("/") or ".." in parts or "\\" in name or ":" in parts[0] or not name.isprintable():
            raise _error(path, f"the archive holds the name {name!r}, which leads out of it or cannot be shown")
        members["/".join(part for part in parts if part not in ("", "."))] = entry
        if len(members) > _MEMBERS:
            raise _error(path, f"the archive holds more than {_MEMBERS:,} files; {_UNPACK}")
    return file, members


def _error(path: Path, problem: str) -> OSError:
    return OSError(errno.EINVAL, problem, str(path))
