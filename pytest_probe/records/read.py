"""The readers of all formats, the one that recognises a file, and the dumps that a path means: a file, an archive, a
pattern, or a folder and what lies below it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from glob import glob, has_magic
from pathlib import Path

from msgspec.structs import replace

from pytest_probe.errors import DumpError, HookFailed, RecordError, SettingsError
from pytest_probe.model.dump import TENSOR_FOLDER, Call, Dump, Reader, Record
from pytest_probe.records.api_accuracy_checker import CheckerReader
from pytest_probe.records.labels import natural_order
from pytest_probe.records.msprobe import MsprobeReader
from pytest_probe.records.named_tensors import READERS as TENSOR_READERS
from pytest_probe.records.paddle_lines import PaddleLinesReader, unreadable_line
from pytest_probe.records.paddleapex import PaddleApexReader, whole_of, without_parts
from pytest_probe.records.ptdbg import PtdbgReader
from pytest_probe.system import archive
from pytest_probe.system.files import special_kind
from pytest_probe.system.tensor_files.torch_zip import first_pickle
from pytest_probe.system.text import closest
from pytest_probe.user_errors import reporting_failures_of

READERS: tuple[Reader, ...] = (
    MsprobeReader(),
    PaddleApexReader(),
    CheckerReader(),
    PtdbgReader(),
    PaddleLinesReader(),
    *TENSOR_READERS,
)

NO_SUCH = "there is no such file or folder"
# Bytes by which readers recognise a file: enough for a header and the first entry.
_HEAD = 64 * 1024
# Formats that a message lists.
_KNOWN_FORMATS = (
    "known are dumps of msprobe 1.0 to 26.2 (dump.json, with entries under the key 'data'), of the "
    "api_accuracy_checker of 2023 (forward_info_0.json), of ptdbg (a .pkl that is text) and of PaddleAPEX "
    "(forward_rank0.json), text files with a call of Paddle's in each line, and files of named tensors (.safetensors, "
    "and a .pt that holds a dictionary)"
)
_FORWARD_ADVICE = "give the forward_info file next to it"
_LINES_ADVICE = 'give lines as paddle.add(Tensor([2, 3],"float32"), 1.0, )'
# Bounded, as keys of real files are: an unbounded search for a key takes quadratic time.
_TEXT = r'[^"\\]{0,300}'
_KEY = f'"{_TEXT}'
# How pickles of lists, dicts and tuples begin; pickles of the first protocols are text, or nearly.
_PICKLE = re.compile(rb"\x80[\x02-\x05]|\([ldtVXK]|[]}]q")
# What a file in UTF-16 begins with, as PowerShell writes what a program prints.
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_HEADER = re.compile(r'\{\s*"task"\s*:[^{]*"level"\s*:')
# Files that users gave instead of a dump, by how they begin: what a file is, and what to do.
_OTHER_FILES: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (
        re.compile(rf'\{{\s*{_KEY}\*\d+"\s*:\s*\[\s*"File '),
        "is the stack file of an api_accuracy_checker dump, not the dump",
        _FORWARD_ADVICE,
    ),
    (
        re.compile(rf'\{{\s*{_KEY}\*\d+"\s*:\s*\['),
        "is the backward_info file of an api_accuracy_checker dump, which belongs to another file",
        _FORWARD_ADVICE,
    ),
    (
        re.compile(rf'\{{\s*{_KEY}"\s*:\s*\[\s*(?:\[\s*{_KEY}"|"File )'),
        "is the stack file of a dump, not the dump",
        "give the dump.json next to it",
    ),
)
# Files that a pattern may match and that are no dumps; and endings of files that are dumps, or should be.
_NO_DUMPS = ("stack.json", "construct.json", TENSOR_FOLDER)
_DUMP_ENDINGS = (".json", ".json.gz", ".zip", ".tar", ".tar.gz", ".tgz")
# Files in a folder with other endings are not opened.
_SUFFIXES = (".json", ".txt", ".pkl")
# The same of files of named tensors. A folder means them only where it holds no other dump: a checkpoint may lie there.
_TENSOR_SUFFIXES = (".safetensors", ".pt")
# Files of one folder are called alike.
_ALIKE = 0.7


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
    raise DumpError(path, *_unrecognised(head))


def is_recognised(path: Path, readers: Sequence[Reader] = READERS) -> bool:
    """Does a reader take this file, or break on it? `read_dump` says how it broke."""
    try:
        head = _head(path)
        return any(_sniffs(reader, path, head) for reader in readers)
    except OSError:
        return False
    except HookFailed:
        return True


def is_part(path: Path, readers: Sequence[Reader] = READERS) -> bool:
    """Is the file left out where a folder's dumps are collected? Another dump there holds all its records, or it holds
    tensors alone, as checkpoints do."""
    whole = whole_of(path)
    return is_recognised(path, TENSOR_READERS) or (whole is not None and is_recognised(whole, readers))


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


def _unrecognised(head: bytes) -> tuple[str, str]:
    """What was found in a file that begins with head, and what to do about it."""
    if head.startswith(_UTF16):
        return "is in UTF-16", "save it as UTF-8"
    if first_pickle(head):
        return "is a file of torch.save that holds no dictionary", _KNOWN_FORMATS
    if _PICKLE.match(head):
        return "is a pickle, which is never unpickled", _KNOWN_FORMATS
    if b"\0" in head:
        return "is not a dump: it is binary", _KNOWN_FORMATS
    text = head.decode("utf-8", errors="replace").lstrip("\ufeff \t\r\n")
    if not text:
        return "is empty", "repeat the capture"
    if _HEADER.match(text):
        found = "has the header of a dump but no entries: the key 'data' is missing or is not an object"
        return found, "repeat the capture"
    broken = unreadable_line(head)
    if broken:
        return f"holds no call that can be read: {broken}", _LINES_ADVICE
    for pattern, found, advice in _OTHER_FILES:
        if pattern.match(text):
            return found, advice
    if text.startswith("{"):
        keys = re.findall(r'"([^"\\]{1,40})"\s*:', text)[:5]
        found = f"it is JSON with the keys {', '.join(keys)}" if keys else "it is a JSON object without keys"
    else:
        found = f"it begins with {text[:24]!r}"
    return f"is not a dump: {found}", _KNOWN_FORMATS


def find_dumps(path: Path, readers: Sequence[Reader] = READERS) -> list[Path]:
    """The dumps that a path means, in natural order (step2 before step10): a file itself, an archive as its folder, a
    pattern all that it matches.

    A folder means every .json, .txt and .pkl file in it that a reader recognises, without parts of another one, and
    every dump.json: no reader recognises a damaged one. Without any it means its files of named tensors. Raises
    DumpError without one.
    """
    if _is_pattern(path):
        return [dump for each in expand_pattern(path) for dump in find_dumps(each, readers)]
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
    # A damaged dump is known by its name.
    found = [
        file
        for file in _files_in(path)
        if is_recognised(file, readers) or (file.name in ("dump.json", "dump.json.gz") and file.is_file())
    ]
    found = found or [file for file in _files_in(path, _TENSOR_SUFFIXES) if is_recognised(file, readers)]
    if not found:
        raise DumpError(path, "the folder holds no dump", "give one that holds a dump.json")
    return sorted(without_parts(found), key=natural_order)


def expand_pattern(path: Path) -> list[Path]:
    """The files and folders that a pattern matches, as `runs/*/dump.json`, in natural order; another path is itself.

    Stack files and the like are left out. Raises DumpError where nothing is left.
    """
    if not _is_pattern(path):
        return [path]
    found = (Path(name) for name in glob(str(path), recursive=True))
    dumps = sorted((each for each in found if each.name not in _NO_DUMPS and _may_be_dump(each)), key=natural_order)
    if not dumps:
        raise DumpError(path, "it matches no dump")
    return dumps


def _nearest(path: Path) -> str:
    """The file or folder with the closest name, if the path's folder exists."""
    try:
        names = os.listdir(path.parent)
    except OSError:
        return ""
    found = closest(names, path.name, _ALIKE)
    return f"; did you mean {path.parent / found}?" if found else ""


def _is_pattern(path: Path) -> bool:
    return has_magic(str(path)) and not os.path.lexists(path)


def _may_be_dump(path: Path) -> bool:
    if not path.is_dir():
        return path.name.endswith(_DUMP_ENDINGS) or is_recognised(path)
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
        found = [file for file in files if file.name == "dump.json" or is_recognised(file, readers)]
    except OSError as error:
        raise DumpError(path, f"cannot be read ({error.strerror or error})") from None
    if not found:
        if any(each.endswith(_TENSOR_SUFFIXES) for each in names):
            raise DumpError(path / name, "the archive holds no dump, and tensors are not read from it", "unpack it")
        raise DumpError(
            path / name, "the archive holds no dump" if not name else NO_SUCH, "give one that holds a dump.json"
        )
    return sorted(without_parts(found), key=natural_order)


def dumps_of_option(option: str, path: Path) -> list[Path]:
    """The dumps that the path of an option means. Raises SettingsError without one."""
    try:
        return find_dumps(path)
    except DumpError as error:
        raise SettingsError(option, str(path), error.problem) from None


def _files_in(folder: Path, suffixes: tuple[str, ...] = (*_SUFFIXES, ".json.gz")) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != TENSOR_FOLDER]
        yield from (Path(root, name) for name in files if name.endswith(suffixes))
