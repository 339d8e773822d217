"""`results.jsonl`, one result a line, and `run.json`, what the run was."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Protocol

import msgspec

from pytest_probe.errors import ResultsError, SettingsError
from pytest_probe.model.result import Result
from pytest_probe.system import archive
from pytest_probe.system.files import open_regular, replacing, try_lock

SCHEMA = 1
RESULTS, RUN = "results.jsonl", "run.json"
_LINES, _RESULTS = msgspec.json.Encoder(), msgspec.json.Decoder(Result)


class _EarlierResults(Protocol):
    """The results that a run goes on behind, and the run that left them."""

    @property
    def started(self) -> str:
        """When that run began, as run.json says it."""

    @property
    def finished(self) -> bool:
        """Has every item its result?"""

    def without_reruns(self, file: IO[bytes]) -> IO[bytes]:
        """The locked results file, without the lines of cases that run again. Raises OSError and SettingsError."""


class ResultsWriter:
    """`results.jsonl`, one line an item and written with it, and `run.json`.

    Locked until it is closed. Where the disk takes no more, trouble says so in one sentence, whole lines stay, and what
    follows is dropped. earlier: go on behind these results. Raises SettingsError where the folder holds results
    already, is locked by another run, or cannot be written to.
    """

    def __init__(self, folder: Path, run: Mapping[str, Any], earlier: _EarlierResults | None = None) -> None:
        self.folder = folder
        self.trouble = ""
        self._run = {"schema": SCHEMA, **run}
        path = folder / RESULTS
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = path.open("ab", buffering=0)
            if not _lock(self._file):
                raise SettingsError(
                    "--probe-out", str(folder), "another run writes there; give another folder, or wait"
                )
            if earlier is not None:
                self._file = earlier.without_reruns(self._file)
                self._run["started"] = earlier.started
            elif path.stat().st_size:
                advice = "give a new folder, or go on with --probe-resume"
                raise SettingsError("--probe-out", str(folder), f"it holds {RESULTS} of another run; {advice}")
            self._kept = path.stat().st_size
            if earlier is None or not earlier.finished:
                self._write_run()
        except OSError as error:
            raise SettingsError("--probe-out", str(folder), f"it cannot be written to: {error.strerror}") from None

    def write(self, lines: str) -> None:
        """Append lines of results as they are."""
        if self.trouble:
            return
        left = memoryview(lines.encode())
        try:
            while left:
                left = left[self._file.write(left) :]
            self._kept = self._file.tell()
        except OSError as error:
            self.trouble = (
                f"{self.folder / RESULTS} cannot be written ({error.strerror}): it ends with the last whole line"
            )
            self._file.truncate(self._kept)

    @property
    def size(self) -> int:
        """Bytes of results."""
        return self._kept

    def add(self, **more: Any) -> None:
        """Add what was not known before to `run.json`."""
        self._run |= more
        with suppress(OSError):
            self._write_run()

    def release(self) -> None:
        """Write nothing more, and let other runs write."""
        self._file.close()

    def close(self, **summary: Any) -> None:
        """End the run; summary is added to `run.json`."""
        self.release()
        self._run |= summary
        try:
            self._write_run()
        except OSError as error:
            lost = f"{self.folder / RUN} cannot be written ({error.strerror}): it does not tell how the run ended"
            self.trouble = self.trouble or lost

    def _write_run(self) -> None:
        with replacing(self.folder / RUN) as temporary:
            temporary.write_bytes(msgspec.json.format(msgspec.json.encode(self._run), indent=2) + b"\n")


def _lock(file: IO[bytes]) -> bool:
    """Takes the lock, or assumes it on a file system without locks, where nobody knows who writes."""
    with suppress(OSError):
        return try_lock(file)
    return True


def digest(path: Path) -> str:
    """SHA-256 of a file as it is unpacked, as "sha256:..."."""
    with archive.open_file(path) as file:
        state = hashlib.sha256()
        while block := file.read(1 << 20):
            state.update(block)
    return f"sha256:{state.hexdigest()}"


def lines_of(results: Iterable[Result]) -> str:
    """Results as lines of `results.jsonl`."""
    return _LINES.encode_lines(results).decode()


def results_in(lines: str) -> list[Result]:
    """The results behind what `lines_of` made."""
    return _RESULTS.decode_lines(lines)


def read_results(path: Path) -> Iterator[Result]:
    """The results of a run, one an item; a line that was cut off at the end is no result.

    Raises OSError, and ResultsError where a line is no result of ours.
    """
    decoder = msgspec.json.Decoder(Result)
    with open_regular(path) as file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n"):
                try:
                    yield decoder.decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                    raise ResultsError(f"{path}:{number}", str(error)) from None
