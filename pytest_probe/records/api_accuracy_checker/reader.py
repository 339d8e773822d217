"""The dumps of the api_accuracy_checker of 2023: forward_info_0.json and what lies beside it."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import msgspec

from pytest_probe.errors import DumpError
from pytest_probe.model.dump import Dump, Frame, Record
from pytest_probe.records import lazy_json, salvage
from pytest_probe.records.api_accuracy_checker.entries import Folders, decode
from pytest_probe.records.msprobe.stack import StackFile
from pytest_probe.system import archive
from pytest_probe.system.process import paused_gc
from pytest_probe.system.text import printable_line

# "Functional*conv2d*3": namespace, API and number of the call. Bounded: what is no key of such a file may be any text.
_KEY = r'"[A-Za-z_]{1,40}\*[^"\\*\s]{1,300}\*\d{1,18}"\s*:\s*'
_FORWARD = re.compile(_KEY.encode() + rb'\{\s*"args"')
_BEGINS = re.compile(rb"\s*\{")
# How entries begin in each of the two files.
_ENTRY = {"forward": re.compile(_KEY + r"\{"), "backward": re.compile(_KEY + r"\[")}
_NAME = re.compile(r"([A-Za-z_]+)\*([^*]+)\*(0|[1-9]\d{0,17})", re.ASCII)
_UNNAMED = "entries with a name that is no API call"
# The folder of a process, in the path of its files.
_RANK = re.compile(rb"(?:forward|backward)_real_data[/\\]+(rank\w{1,20})[/\\]")


class CheckerReader:
    """Reads what the api_accuracy_checker wrote. Entries stay raw until they are decoded."""

    name = "api_accuracy_checker"

    def sniff(self, path: Path, head: bytes) -> bool:
        """Is this a JSON object with entries as "Torch*cat*0": {"args": ...}?"""
        text = lazy_json.without_mark(head)
        return bool(_BEGINS.match(text)) and bool(_FORWARD.search(text))

    def read(self, path: Path) -> Dump:
        """Read the dump. Raises DumpError where no entry can be found in it."""
        damage: list[str] = []
        content = lazy_json.read_bytes(path)
        rank = _RANK.search(content)
        forward = _entries(path, content, "forward", damage)
        backward = _backward(_beside(path, "backward"), path, damage)
        skipped: Counter[str] = Counter()
        with paused_gc():
            records = tuple(_records(forward, backward, skipped))
        folders = Folders(*(_folders(path, part, rank[1].decode() if rank else "") for part in ("forward", "backward")))
        return Dump(
            path=path,
            framework="pytorch",
            task="tensor" if rank else "statistics",
            level="",
            records=records,
            decode=partial(decode, path, folders),
            stack=_Stack(_beside(path, "stack")),
            data_dirs=folders.arguments,
            gradient_dirs=folders.gradients,
            damage=tuple(damage),
            skipped=dict(skipped),
            fields={"input": "args", "kwargs": "kwargs", "grad": "input"},
        )


class _Stack:
    """The frames of a call, by the name that its stack file has for it."""

    def __init__(self, path: Path) -> None:
        self._file = StackFile(path)

    def __call__(self, entry: str) -> tuple[Frame, ...]:
        """The frames of an entry, innermost first; both directions have the same."""
        name = entry.rpartition(".")[0]
        left, _, number = name.rpartition(".")
        namespace, _, api = left.partition(".")
        return self._file(f"{namespace}*{api}*{number}")


def _beside(path: Path, kind: str) -> Path:
    """The file of another kind that belongs to a forward_info file, by its name; of one that was renamed there is
    none."""
    return path.with_name(path.name.replace("forward_info", f"{kind}_info", 1))


def _backward(path: Path, forward: Path, damage: list[str]) -> Mapping[str, msgspec.Raw]:
    """The backward entries; none where there is no such file."""
    if path == forward:
        return {}
    try:
        content = lazy_json.read_bytes(path)
    except OSError:
        return {}
    try:
        return _entries(path, content, "backward", damage)
    except DumpError as error:
        damage.append(str(error))
        return {}


def _entries(path: Path, content: bytearray, direction: str, damage: list[str]) -> Mapping[str, msgspec.Raw]:
    """The entries of one of the files; what is wrong with it goes to damage. Raises DumpError where there are none."""
    try:
        return lazy_json.parse(content)
    except (ValueError, RecursionError) as error:
        reason = str(error)
    # Read anew, since quoting goes wrong behind the damage.
    with paused_gc():
        saved = salvage.salvage(lazy_json.read_bytes(path), _ENTRY[direction])
    damage.append(salvage.damage(path, saved, reason))
    return saved.entries


def _records(
    forward: Mapping[str, msgspec.Raw], backward: Mapping[str, msgspec.Raw], skipped: Counter[str]
) -> Iterator[Record]:
    """The records in the order of the forward, then those that have a backward alone."""
    for key in (*forward, *(key for key in backward if key not in forward)):
        name = _NAME.fullmatch(key)
        if name is None:
            skipped[_UNNAMED] += 1
            continue
        namespace, api = map(printable_line, name.group(1, 2))
        full = f"{namespace}.{api}.{name[3]}"
        yield Record(full, sys.intern(namespace), sys.intern(api), int(name[3]), forward.get(key), backward.get(key))


def _folders(path: Path, part: str, rank: str) -> tuple[Path, ...]:
    """Where the files of one direction lie: in the folder of the process that wrote them, else in the only one."""
    folder = path.with_name(f"{part}_real_data")
    named = folder / rank
    if not rank or archive.is_folder(named):
        return (named,) if rank else ()
    ranks = [each for each in archive.list_folder(folder) or _listed(folder) if each.startswith("rank")]
    return (folder / ranks[0],) if len(ranks) == 1 else (folder,)


def _listed(folder: Path) -> list[str]:
    try:
        return [each.name for each in folder.iterdir() if each.is_dir()]
    except OSError:
        return []
