"""From a path to dumps: a file, an archive, a pattern, or a folder and what lies below it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from glob import glob, has_magic
from pathlib import Path

from pytest_probe.errors import DumpError, SettingsError
from pytest_probe.model.dump import TENSOR_FOLDER, Reader
from pytest_probe.records.labels import natural_order
from pytest_probe.records.paddleapex import without_parts
from pytest_probe.records.read import NO_SUCH, READERS, is_recognised
from pytest_probe.system import archive
from pytest_probe.system.files import special_kind
from pytest_probe.system.text import closest

# Files that a pattern may match and that are no dumps; and endings of files that are dumps, or should be.
_NO_DUMPS = ("stack.json", "construct.json", TENSOR_FOLDER)
_DUMP_ENDINGS = (".json", ".json.gz", ".zip", ".tar", ".tar.gz", ".tgz")
# Files in a folder with other endings are not opened.
_SUFFIXES = (".json", ".txt", ".pkl")
# The same of files of named tensors. A folder means them only where it holds no other dump: a checkpoint may lie there.
_TENSOR_SUFFIXES = (".safetensors", ".pt")
# Files of one folder are called alike.
_ALIKE = 0.7


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
