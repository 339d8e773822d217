"""Entries that came, as dumps of one call each in a folder of this process alone."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.capture.online.message import FILES, Entry, NoMessage, read
from pytest_probe.check import Case, Checker
from pytest_probe.errors import DumpError
from pytest_probe.export.details import read_rows
from pytest_probe.export.three_party import compare, compared_files, judge
from pytest_probe.features.online.folder_source import Received
from pytest_probe.model.dump import TENSOR_FOLDER, Dump, Reader
from pytest_probe.model.result import PortableId, Result
from pytest_probe.model.verdict import Verdict
from pytest_probe.records import read_dump
from pytest_probe.reports.results_file import RESULTS, lines_of, write_rows

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


# Its results, below --probe-out.
_FOLDER = "benchmark"


class BesideDevice:
    """One device of this machine. out is --probe-out: its results go to a folder below. Raises SettingsError for a
    device that is not here."""

    def __init__(self, checker: Checker, out: Path | None) -> None:
        self._checker = checker
        self.name = checker.engines_of(frameworks.DEFAULT).describe().get("device", "")
        self._results = None if out is None else out / _FOLDER / RESULTS
        if self._results is not None:
            self._results.parent.mkdir(parents=True, exist_ok=True)
            self._results.touch()

    def judge(self, case: Case, verdict: Verdict, identity: PortableId, api: str) -> Verdict:
        """The verdict on what came, with what this device gives taken into account."""
        began = time.perf_counter()
        own = self._checker.run(case, None).verdict
        seconds = time.perf_counter() - began
        result = Result.of(
            own, identity, api=api, direction=case.direction, dtype=case.dtype or "", device=self.name, duration=seconds
        )
        if self._results is not None:
            with self._results.open("a", encoding="utf-8") as file:
                file.write(lines_of([result]))
        return judge(verdict, result, api)


def compared_by_rank(folder: Path, ranks: Iterable[int], stamp: str, standard: str) -> Iterator[Path]:
    """Write api_precision_compare files of the results in --probe-out and of the other device's, a pair a rank.
    Raises OSError, SettingsError."""
    device, benchmark = (read_rows(each) for each in (folder, folder / _FOLDER))
    for rank in ranks:
        # Keys have no label where all results have one label.
        own, other = (
            {key: row for key, row in rows.items() if "::" not in key or key.startswith(f"rank{rank}/")}
            for rows in (device, benchmark)
        )
        found = compare(own, other, standard)
        for name, lines in compared_files(f"{stamp}_rank{rank}", found, standard).items():
            yield write_rows(folder / name, lines)
