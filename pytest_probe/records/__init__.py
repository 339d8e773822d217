"""What a dump says: one reader for each format, and the way from a path to records.

In: a file or folder. Out: its dumps, as `Dump` with undecoded records. Raises DumpError, which names file and place.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from glob import glob, has_magic
from pathlib import Path

from msgspec.structs import replace

from pytest_probe.errors import DumpError, HookFailed, RecordError, SettingsError
from pytest_probe.model.dump import TENSOR_FOLDER, Call, Dump, Reader, Record
from pytest_probe.records.api_accuracy_checker.reader import CheckerReader
from pytest_probe.records.labels import captured, labels, natural, stable
from pytest_probe.records.msprobe.construct import module_path
from pytest_probe.records.msprobe.reader import MsprobeReader
from pytest_probe.records.msprobe.stack import user_frame
from pytest_probe.records.paddle_lines.reader import PaddleLinesReader
from pytest_probe.records.paddleapex.reader import PaddleApexReader, whole_of, without_parts
from pytest_probe.records.ptdbg.reader import PtdbgReader
from pytest_probe.records.unrecognised import found_instead
from pytest_probe.system import archive
from pytest_probe.system.files import special_kind
from pytest_probe.user_errors import reporting_failures_of

READERS: tuple[Reader, ...] = (
    MsprobeReader(),
    PaddleApexReader(),
    CheckerReader(),
    PtdbgReader(),
    PaddleLinesReader(),
)

NO_SUCH = "there is no such file or folder"

# What a pattern finds beside dumps, and what else than a reader's word makes a file one that was meant.
_BESIDE = ("stack.json", "construct.json", TENSOR_FOLDER)
_MEANT = (".json", ".json.gz", ".zip", ".tar", ".tar.gz", ".tgz")

# Bytes that readers look at to recognise a file: a header and its first entry, of whatever size the rest is.
_HEAD = 64 * 1024
# Of files in a folder, those that are looked into.
_SUFFIXES = (".json", ".txt", ".pkl")

__all__ = [
    "NO_SUCH",
    "READERS",
    "asked_for",
    "captured",
    "expanded",
    "find_dumps",
    "is_part",
    "labels",
    "module_path",
    "read_dump",
    "recognised",
    "stable",
    "user_frame",
]


def find_dumps(path: Path, readers: Sequence[Reader] = READERS) -> list[Path]:
    """The dumps that a path stands for: a file for itself, a folder for every .json, .txt or .pkl file in it that a
    reader recognises, but for parts of another one, and for every dump.json, which is damaged where no reader does; an
    archive as its folder, a pattern for all that it matches.

    They are in natural order, step2 before step10. Raises DumpError where there is none.
    """
    if _is_pattern(path):
        return [dump for each in expanded(path) for dump in find_dumps(each, readers)]
    place = archive.split(path)
    if place is not None:
        return _in_archive(*place, readers)
    if not os.path.exists(path):  # Path.exists raises where a name is too long
        raise DumpError(path, f"{NO_SUCH}{_nearest(path)}")
    kind = special_kind(path)
    if kind:
        raise DumpError(path, f"it is {kind}", "give a file, or a folder of dumps")
    if archive.is_archive(path):
        return _in_archive(path, "", readers)
    if not os.path.isdir(path):
        return [path]
    found = [file for file in _files_in(path) if recognised(file, readers) or _is_damaged(file)]
    if not found:
        raise DumpError(path, "the folder holds no dump", "give one that holds a dump.json")
    return sorted(without_parts(found), key=natural)


def expanded(path: Path) -> list[Path]:
    """The files and folders that a pattern matches, as `runs/*/dump.json`, in natural order; another path is itself.

    What lies beside dumps is left out. Raises DumpError where nothing is left.
    """
    if not _is_pattern(path):
        return [path]
    found = (Path(name) for name in glob(str(path), recursive=True))
    meant = sorted((each for each in found if each.name not in _BESIDE and _is_meant(each)), key=natural)
    if not meant:
        raise DumpError(path, "it matches no dump")
    return meant


def _nearest(path: Path) -> str:
    """The file or folder of a name that is near to the path's, where its folder is there."""
    try:
        names = os.listdir(path.parent)
    except OSError:
        return ""
    found = get_close_matches(path.name, names, n=1, cutoff=0.7)
    return f"; did you mean {path.parent / found[0]}?" if found else ""


def _is_pattern(path: Path) -> bool:
    return has_magic(str(path)) and not os.path.lexists(path)


def _is_meant(path: Path) -> bool:
    if not path.is_dir():
        return path.name.endswith(_MEANT) or recognised(path)
    try:
        return bool(find_dumps(path))
    except DumpError:
        return False


def _in_archive(path: Path, name: str, readers: Sequence[Reader]) -> list[Path]:
    """The dumps in an archive: this file of it, or all in this folder of it."""
    try:
        names = archive.names(path)
        if name in names:
            return [path / name]
        inside = [each for each in names if each.endswith(_SUFFIXES) and (not name or each.startswith(f"{name}/"))]
        files = [path / each for each in inside if TENSOR_FOLDER not in each.split("/")]
        found = [file for file in files if file.name == "dump.json" or recognised(file, readers)]
    except OSError as error:
        raise DumpError(path, f"cannot be read ({error.strerror or error})") from None
    if not found:
        raise DumpError(
            path / name, "the archive holds no dump" if not name else NO_SUCH, "give one that holds a dump.json"
        )
    return sorted(without_parts(found), key=natural)


def asked_for(option: str, path: Path) -> list[Path]:
    """The dumps that a path stands for, which an option gave. Raises SettingsError where there is none."""
    try:
        return find_dumps(path)
    except DumpError as error:
        raise SettingsError(option, str(path), error.problem) from None


def read_dump(path: Path, readers: Sequence[Reader] = READERS) -> Dump:
    """Read a dump file with the first reader that recognises it. Raises DumpError where none does."""
    try:
        head = _head(path)
        reader = next((reader for reader in readers if _sniffs(reader, path, head)), None)
        if reader is not None:
            return _read(reader, path)
    except HookFailed as error:
        raise DumpError(path, str(error)) from error
    except FileNotFoundError:
        raise DumpError(path, NO_SUCH) from None
    except IsADirectoryError:
        raise DumpError(path, "is a folder", "give a file in it") from None
    except OSError as error:
        raise DumpError(path, f"cannot be read ({error.strerror or error})") from None
    raise DumpError(path, *found_instead(head))


def _is_damaged(file: Path) -> bool:
    """Is this the file of a dump, of which no reader knows the content?"""
    return file.name in ("dump.json", "dump.json.gz") and file.is_file()


def _files_in(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != TENSOR_FOLDER]
        yield from (Path(root, name) for name in files if name.endswith((*_SUFFIXES, ".json.gz")))


def recognised(path: Path, readers: Sequence[Reader] = READERS) -> bool:
    """Does a reader take this file, or break on it? `read_dump` says how it broke."""
    try:
        head = _head(path)
        return any(_sniffs(reader, path, head) for reader in readers)
    except OSError:
        return False
    except HookFailed:
        return True


def is_part(path: Path, readers: Sequence[Reader] = READERS) -> bool:
    """Does a dump beside this one hold all its records too?"""
    whole = whole_of(path)
    return whole is not None and recognised(whole, readers)


def _sniffs(reader: Reader, path: Path, head: bytes) -> bool:
    if reader in READERS:
        return reader.sniff(path, head)
    with reporting_failures_of(f"the reader {reader.name}, asked to sniff,"):
        return bool(reader.sniff(path, head))


def _read(reader: Reader, path: Path) -> Dump:
    if reader in READERS:
        return reader.read(path)
    if archive.split(path) is not None:
        raise DumpError(path, f"the reader {reader.name} reads no archives", "unpack it and give the folder")
    with reporting_failures_of(f"the reader {reader.name}"):
        dump = reader.read(path)
    if not isinstance(dump, Dump):
        raise HookFailed(f"the reader {reader.name} returned {type(dump).__name__}, expected a Dump")

    def decode(record: Record) -> Call:
        try:
            with reporting_failures_of(f"the reader {reader.name}, asked to decode,"):
                return dump.decode(record)
        except HookFailed as error:
            raise RecordError(path, record.name, "", str(error), "a call") from error

    return replace(dump, decode=decode)


def _head(path: Path) -> bytes:
    return archive.head(path, _HEAD)
