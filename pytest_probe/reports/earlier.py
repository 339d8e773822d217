"""What a run that ended early left in its folder, for the run that goes on: --probe-resume."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import msgspec

from pytest_probe.core.file_lock import locked
from pytest_probe.core.regular_file import opened
from pytest_probe.core.result import PortableId, Result
from pytest_probe.core.whole_file import beside
from pytest_probe.errors import ResultsError, SettingsError

OPTION = "--probe-resume"
# Of the settings, those that decide what a result says, by the words of a message.
SAME = {
    "inputs": "inputs",
    "dtypes": "dtype",
    "standard": "standard",
    "mode": "mode",
    "shard": "shard",
    "unique": "unique",
}


class EarlierDump(msgspec.Struct, frozen=True):
    label: str
    digest: str


class EarlierRun(msgspec.Struct, frozen=True):
    """What run.json says of a run: of one that was killed, no end."""

    seed: int
    settings: dict[str, Any]
    dumps: tuple[EarlierDump, ...]
    started: str
    finished: str | None = None
    exit_status: int | None = None
    not_run: int | None = None


class _Named(msgspec.Struct, frozen=True):
    id: str


class Earlier:
    """The run in a folder. Raises SettingsError where its run.json is missing or is none of ours.

    finished: every item has its result, and the run ended by itself.
    """

    def __init__(self, folder: Path, run_file: str, results_file: str) -> None:
        self._folder = folder
        self._path = folder / results_file
        try:
            with opened(folder / run_file) as file:
                self.run = msgspec.json.decode(file.read(), type=EarlierRun)
        except OSError as error:
            missing = f"{run_file} cannot be read ({error.strerror}), so there is no run to go on with"
            raise SettingsError(OPTION, str(folder), f"{missing}; leave {OPTION} out") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SettingsError(OPTION, str(folder), f"its {run_file} is none of pytest-probe's: {error}") from None
        self.finished = self.run.finished is not None and self.run.not_run == 0

    def check(self, run: Mapping[str, Any]) -> None:
        """Raises SettingsError where the run that goes on would give other results."""
        pairs: list[tuple[str, Any, Any]] = [("seed", self.run.seed, run["seed"])]
        pairs += [(word, self.run.settings.get(key), run["settings"][key]) for key, word in SAME.items()]
        for word, earlier, now in pairs:
            if earlier != now:
                told = f"its run has {word} {_shown(earlier)}, this run has {_shown(now)}"
                raise SettingsError(OPTION, str(self._folder), f"{told}; give the same, or a new folder")
        digests = {dump["label"]: dump["digest"] for dump in run["dumps"]}
        for dump in self.run.dumps:
            if digests.get(dump.label) != dump.digest:
                now = f"digest {digests[dump.label]}" if dump.label in digests else "no such dump"
                told = f"its run has {dump.label} with digest {dump.digest}, this run has {now}"
                raise SettingsError(OPTION, str(self._folder), f"{told}; give the same dumps, or a new folder")

    def kept(self, file: IO[bytes]) -> IO[bytes]:
        """The results file, locked, without what has to run again: a line that was cut off, and checks of a test, of
        which some may be missing. Raises OSError."""
        size = _whole_lines(self._path)
        if size < self._path.stat().st_size:
            file.truncate(size)
        if self.finished or not any(_of_test(name) for name in self.names(size)):
            return file
        path = beside(self._path)
        new = path.open("ab", buffering=0)
        locked(new)
        with opened(self._path) as lines:
            new.writelines(line for line in lines if not _of_test(msgspec.json.decode(line, type=_Named).id))
        path.replace(self._path)
        file.close()
        return new

    def results(self, size: int) -> Iterator[Result]:
        """Those in the first bytes of the file. Raises ResultsError where a line is no result of ours."""
        decoder = msgspec.json.Decoder(Result)
        with opened(self._path) as file:
            for number, line in enumerate(file, 1):
                size -= len(line)
                if size < 0:
                    return
                yield _decoded(decoder, line, f"{self._path}:{number}")

    def names(self, size: int) -> frozenset[str]:
        """The portable ids in the first bytes of the file. Raises ResultsError."""
        return result_names(self._path, size)

    @property
    def size(self) -> int:
        return self._path.stat().st_size


def result_names(path: Path, size: int) -> frozenset[str]:
    """The portable ids of the results in the first bytes of a file. Raises ResultsError."""
    decoder = msgspec.json.Decoder(_Named)
    try:
        with opened(path) as file:
            return frozenset(decoder.decode(line).id for line in file.read(size).splitlines())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ResultsError(str(path), str(error)) from None


def _decoded(decoder: msgspec.json.Decoder[Result], line: bytes, where: str) -> Result:
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ResultsError(where, str(error)) from None


def _of_test(name: str) -> bool:
    """Is it a check that a test of the user's own made, rather than a case of a dump?"""
    return PortableId.parse(name).label.endswith(".py")


def _whole_lines(path: Path) -> int:
    """Bytes up to the end of the last whole line."""
    end = path.stat().st_size
    with path.open("rb") as file:
        while end:
            start = max(0, end - (1 << 16))
            file.seek(start)
            place = file.read(end - start).rfind(b"\n")
            if place >= 0:
                return start + place + 1
            end = start
    return 0


def _shown(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
