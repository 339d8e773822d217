"""Entries that came, as dumps of one call each in a folder of this process alone."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from pytest_probe.capture.online.message import FILES, Entry, NoMessage, read
from pytest_probe.errors import DumpError
from pytest_probe.features.online.folder_source import Received
from pytest_probe.model.dump import TENSOR_FOLDER, Dump, Reader
from pytest_probe.records import read_dump

# The keys of a dump's header that a program may say.
_HEADER = ("task", "level", "framework", "probe")


class Dumps:
    """folder is this process's own: what a program sends is read from there by the names that we give."""

    def __init__(self, folder: Path, readers: Sequence[Reader]) -> None:
        self._folder = folder
        self._readers = readers
        self._count = 0

    def read(self, received: Received) -> Dump:
        """In a folder of its own. Raises NoMessage where it is no entry of a call, or its forward entry never came."""
        entry, entries = received.entry, [received.entry]
        files = {entry.direction: received.path}
        if entry.direction == "backward":
            entries = [self._forward(received), entry]
            files["forward"] = received.forward  # type: ignore[assignment]
        folder = self._folder / f"{self._count}"
        self._count += 1
        tensors = folder / TENSOR_FOLDER
        tensors.mkdir(parents=True)
        for direction, path in files.items():
            os.symlink(path, tensors / FILES[direction])
        try:
            data: dict[str, Any] = {entry.name: json.loads(entry.body) for entry in entries}
            header = {key: value for key, value in entries[0].header.items() if key in _HEADER}
            (folder / "dump.json").write_text(json.dumps({**header, "dump_data_dir": None, "data": data}))
            stacks = {str(place): [[entry.name], entry.frames] for place, entry in enumerate(entries) if entry.frames}
            (folder / "stack.json").write_text(json.dumps(stacks))
            dump = read_dump(folder / "dump.json", self._readers)
        except (DumpError, ValueError, RecursionError) as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise NoMessage(f"{entry.name}: {error}") from None
        # The links are ours, and a name in an entry is a bare one.
        return replace(dump, data_dirs=(tensors,), anywhere=True)

    def _forward(self, received: Received) -> Entry:
        if received.forward is None:
            raise NoMessage(f"{received.entry.name}: its forward entry never came")
        try:
            forward = read(received.forward)
        except OSError as error:
            raise NoMessage(f"{received.entry.name}: its forward entry is gone ({error.strerror})") from None
        if not isinstance(forward, Entry) or forward.name.rpartition(".")[0] != received.entry.name.rpartition(".")[0]:
            raise NoMessage(f"{received.entry.name}: it has the number of another call")
        return forward
