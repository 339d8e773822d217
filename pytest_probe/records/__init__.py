"""What a dump says: one reader for each format, and the way from a path to records.

In: a file or folder. Out: its dumps, as `Dump` with undecoded records. Raises DumpError, which names file and place.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_probe.core.dump import TENSOR_FOLDER, Call, Dump, Reader, Record
from pytest_probe.core.regular_file import opened, special
from pytest_probe.errors import DumpError, HookFailed, RecordError, SettingsError
from pytest_probe.records.labels import labels, natural
from pytest_probe.records.msprobe.reader import MsprobeReader
from pytest_probe.records.msprobe.stack import user_frame
from pytest_probe.records.unrecognised import found_instead
from pytest_probe.user_errors import reporting_failures_of

READERS: tuple[Reader, ...] = (MsprobeReader(),)

NO_SUCH = "there is no such file or folder"

# Bytes that readers look at to recognise a file: a header and its first entry, of whatever size the rest is.
_HEAD = 64 * 1024

__all__ = ["NO_SUCH", "READERS", "asked_for", "find_dumps", "labels", "read_dump", "recognised", "user_frame"]


def find_dumps(path: Path, readers: Sequence[Reader] = READERS) -> list[Path]:
    """The dumps that a path stands for: a file for itself, a folder for every JSON file in it that a reader recognises.

    They are in natural order, step2 before step10. Raises DumpError where there is none.
    """
    if not os.path.exists(path):  # Path.exists raises where a name is too long
        raise DumpError(path, NO_SUCH)
    kind = special(path)
    if kind:
        raise DumpError(path, f"is {kind}", "give a file, or a folder of dumps")
    if not os.path.isdir(path):
        return [path]
    found = sorted((file for file in _json_files(path) if recognised(file, readers)), key=natural)
    if not found:
        raise DumpError(path, "the folder holds no dump", "give one that holds a dump.json")
    return found


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


def _json_files(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != TENSOR_FOLDER]
        yield from (Path(root, name) for name in files if name.endswith(".json"))


def recognised(path: Path, readers: Sequence[Reader] = READERS) -> bool:
    """Does a reader take this file, or break on it? `read_dump` says how it broke."""
    try:
        head = _head(path)
        return any(_sniffs(reader, path, head) for reader in readers)
    except OSError:
        return False
    except HookFailed:
        return True


def _sniffs(reader: Reader, path: Path, head: bytes) -> bool:
    if reader in READERS:
        return reader.sniff(path, head)
    with reporting_failures_of(f"the reader {reader.name}, asked to sniff,"):
        return bool(reader.sniff(path, head))


def _read(reader: Reader, path: Path) -> Dump:
    if reader in READERS:
        return reader.read(path)
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
    with opened(path) as file:
        return file.read(_HEAD)
