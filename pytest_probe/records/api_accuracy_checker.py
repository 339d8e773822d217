"""The dumps of the api_accuracy_checker of 2023, from which msprobe's checker comes.

In: forward_info_0.json, with backward_info_0.json, stack_info_0.json and folders of tensors in the same folder. Out: a
`Dump` of undecoded records, and each as a `Call`. Where the dump lacks a tensor's dtype and shape, its file has
them.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, TypeAlias

import msgspec

from pytest_probe.errors import DumpError, RecordError
from pytest_probe.model.dump import Argument, Call, Dump, Frame, Record
from pytest_probe.records import raw_json
from pytest_probe.records.fields import UNNAMED, ArgumentFields, limited_depth, quoted
from pytest_probe.records.msprobe.call_sites import StackFile
from pytest_probe.records.msprobe.entries import LEAVES, tensor
from pytest_probe.system import archive
from pytest_probe.system.process import paused_gc
from pytest_probe.system.tensor_files import torch_zip
from pytest_probe.system.text import printable_line

_TENSOR = "torch.Tensor"
_FILE = "datapath"
_Folders: TypeAlias = tuple[Path, ...]


def decode(path: Path, folders: _Folders, gradient_folders: _Folders, record: Record) -> Call:
    """The call that a record of the dump at path describes; folders: where the files of arguments are looked up, and
    those of gradients. Raises RecordError."""
    if record.forward is None:
        raise RecordError(path, f"{record.name}.backward", "", "no forward entry", "the forward entry of the same call")
    with limited_depth(path, record.name):
        forward = _EntryFields(path, f"{record.name}.forward", folders)
        body = forward.object(record.forward)
        args = forward.items(forward.need(body, "args", "", list, "a list of arguments"), "args")
        kwargs = forward.optional(body, "kwargs", "", dict, "an object of arguments")
        named = {key: forward.argument(value, f"kwargs.{key}") for key, value in kwargs.items()}
        if record.backward is None:
            return Call(tuple(args), named, None, None)
        backward = _EntryFields(path, f"{record.name}.backward", gradient_folders)
        # One for each output.
        incoming = backward.decoded(record.backward)
        if not isinstance(incoming, list):
            raise backward.error("", quoted(incoming), "a list of gradients")
        return Call(tuple(args), named, None, backward.tensors(incoming, "input"))


class _EntryFields(ArgumentFields):
    leaves = LEAVES

    def __init__(self, path: Path, name: str, folders: _Folders) -> None:
        super().__init__(path, name)
        self.folders = folders

    def leaf(self, kind: str, value: Mapping[str, Any], field: str) -> Argument:
        if kind == _TENSOR:
            return tensor(self, self.with_file(value, field), field)
        return None if kind == "NoneType" else super().leaf(kind, value, field)

    def with_file(self, value: Mapping[str, Any], field: str) -> Mapping[str, Any]:
        """A tensor with the bare name of its file, and with the dtype and shape that only the file has."""
        if value.get(_FILE) is None:
            return {key: item for key, item in value.items() if key != "data_name"}
        text = self.need(value, _FILE, field, str, "the path of a file")
        # Without the folders of the machine that wrote the dump.
        parts = PureWindowsPath(text).parts if "\\" in text else PurePosixPath(text).parts
        if ".." in parts or not parts:
            raise self.error(f"{field}.{_FILE}", quoted(text), "the path of a file, without '..'")
        name = parts[-1]
        found = {**value, "data_name": name}
        if "dtype" in value and "shape" in value:
            return found
        place = f"{field}.{_FILE}"
        self.file_name(found, "data_name", field)
        path = next((each / name for each in self.folders if archive.is_file(each / name)), None)
        if path is None or not path.resolve().is_relative_to(self.path.parent.resolve()):
            folders = ", ".join(map(str, self.folders)) or "no folder"
            raise self.error(place, f"no file {name!r} in {folders}", "the stored tensor there")
        try:
            with archive.open_file(path) as file:
                stored = torch_zip.read_one(file)
        except (OSError, ValueError) as error:
            raise self.error(place, f"{path}, which cannot be read ({error})", "a stored tensor") from error
        return {**found, "dtype": stored.dtype, "shape": list(stored.shape)}


# "Functional*conv2d*3": namespace, API and number of the call. Bounded: any other text may be long.
_KEY = r'"[A-Za-z_]{1,40}\*[^"\\*\s]{1,300}\*\d{1,18}"\s*:\s*'
_FORWARD = re.compile(_KEY.encode() + rb'\{\s*"args"')
_BEGINS = re.compile(rb"\s*\{")
# How entries begin in each of the two files.
_ENTRY = {"forward": re.compile(_KEY + r"\{"), "backward": re.compile(_KEY + r"\[")}
_NAME = re.compile(r"([A-Za-z_]+)\*([^*]+)\*(0|[1-9]\d{0,17})", re.ASCII)
# The folder of a process, in the path of its files.
_RANK = re.compile(rb"(?:forward|backward)_real_data[/\\]+(rank\w{1,20})[/\\]")


class CheckerReader:
    """Reads what the api_accuracy_checker wrote. Entries stay raw until they are decoded."""

    name = "api_accuracy_checker"

    def sniff(self, path: Path, head: bytes) -> bool:
        """Is this a JSON object with entries as "Torch*cat*0": {"args": ...}?"""
        text = raw_json.without_mark(head)
        return bool(_BEGINS.match(text)) and bool(_FORWARD.search(text))

    def read(self, path: Path) -> Dump:
        """Read the dump. Raises DumpError where no entry can be found in it."""
        content = raw_json.read_bytes(path)
        rank = _RANK.search(content)
        loaded = raw_json.load(path, _ENTRY["forward"], content=content)
        backward = _backward(path)
        skipped: Counter[str] = Counter()
        with paused_gc():
            records = tuple(_records(loaded.entries, backward.entries, skipped))
        name = rank[1].decode() if rank else ""
        folders, gradient_folders = (_folders(path, part, name) for part in ("forward", "backward"))
        return Dump(
            path=path,
            framework="pytorch",
            task="tensor" if rank else "statistics",
            level="",
            records=records,
            decode=partial(decode, path, folders, gradient_folders),
            stack=partial(_frames, StackFile(_companion(path, "stack"))),
            data_dirs=folders,
            gradient_dirs=gradient_folders,
            notes=(*loaded.notes, *backward.notes),
            damage=(*loaded.damage, *backward.damage),
            skipped=dict(skipped),
            fields={"input": "args", "kwargs": "kwargs", "grad": "input"},
        )


def _frames(file: StackFile, entry: str) -> tuple[Frame, ...]:
    """The frames of a call, innermost first, by the name that its stack file has for it; both directions have the
    same."""
    left, _, number = entry.rpartition(".")[0].rpartition(".")
    namespace, _, api = left.partition(".")
    return file(f"{namespace}*{api}*{number}")


def _companion(path: Path, kind: str) -> Path:
    """The backward or stack file of a forward_info file. A renamed forward_info file gives its own path."""
    return path.with_name(path.name.replace("forward_info", f"{kind}_info", 1))


def _backward(forward: Path) -> raw_json.Loaded:
    """What the backward file has; nothing if it is missing, or no entry can be read."""
    path = _companion(forward, "backward")
    try:
        return raw_json.Loaded({}, {}) if path == forward else raw_json.load(path, _ENTRY["backward"])
    except OSError:
        return raw_json.Loaded({}, {})
    except DumpError as error:
        return raw_json.Loaded({}, {}, damage=(str(error),))


def _records(
    forward: Mapping[str, msgspec.Raw], backward: Mapping[str, msgspec.Raw], skipped: Counter[str]
) -> Iterator[Record]:
    """The records in the order of the forward file, then records that have only a backward."""
    for key in (*forward, *(key for key in backward if key not in forward)):
        name = _NAME.fullmatch(key)
        if name is None:
            skipped[UNNAMED] += 1
            continue
        namespace, api = map(printable_line, name.group(1, 2))
        full = f"{namespace}.{api}.{name[3]}"
        yield Record(full, sys.intern(namespace), sys.intern(api), int(name[3]), forward.get(key), backward.get(key))


def _folders(path: Path, part: str, rank: str) -> _Folders:
    """Where the files of one direction lie: in the folder of the process that wrote them, else in the only one."""
    folder = path.with_name(f"{part}_real_data")
    named = folder / rank
    if not rank or archive.is_folder(named):
        return (named,) if rank else ()
    ranks = [each for each in archive.list_folder(folder) if each.startswith("rank")]
    if not ranks:
        with suppress(OSError):  # the folder cannot be read
            ranks = [each.name for each in folder.glob("rank*") if each.is_dir()]
    return (folder / ranks[0],) if len(ranks) == 1 else (folder,)
