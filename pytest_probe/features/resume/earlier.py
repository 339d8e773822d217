"""What a run that ended early left in its folder, for the run that goes on: --probe-resume."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec.structs import replace

from pytest_probe.errors import ResultsError, SettingsError
from pytest_probe.model.result import Result
from pytest_probe.reports.results_file import Identity, check
from pytest_probe.reports.running import TIMEOUT
from pytest_probe.reports.selected import ITEMS, Items, RunEnd, fault_lines, faults, ids_in, is_of_test, read_items
from pytest_probe.system.decoding import json_decoder
from pytest_probe.system.files import open_regular, temporary_path, try_lock

_OPTION = "--probe-resume"
_ADVICE = "give the same, or a new folder"


class _Settings(msgspec.Struct, frozen=True):
    strict: bool = False
    timeout: float = 0.0


class _EarlierRun(RunEnd, frozen=True, kw_only=True):
    """The facts of a run in run.json; a killed run has no end."""

    identity: dict[str, Any]
    settings: _Settings
    devices: list[dict[str, str]]
    started: str
    exit_status: int | None = None
    tables: tuple[str, ...] = ()


class Earlier:
    """The run in a folder. Raises SettingsError where its run.json is missing or is none of ours.

    strict and timeout are settings of the run that goes on. finished: every item has its result, the run ended by
    itself, and the same verdicts failed in it. longer: what the time limit ended may have more time now, and runs
    again. remarks: what of its results runs again, and why.
    """

    def __init__(self, folder: Path, run_file: str, results_file: str, *, strict: bool, timeout: float) -> None:
        self._folder = folder
        self._path = folder / results_file
        self.remarks: list[str] = []
        try:
            with open_regular(folder / run_file) as file:
                self.run = msgspec.json.decode(file.read(), type=_EarlierRun)
        except OSError as error:
            missing = f"{run_file} cannot be read ({error.strerror}), so there is no run to go on with"
            raise SettingsError(_OPTION, str(folder), f"{missing}; leave {_OPTION} out") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SettingsError(_OPTION, str(folder), f"its {run_file} is none of pytest-probe's: {error}") from None
        same_end = self.run.settings.strict == strict
        self.finished = self.run.finished is not None and self.run.not_run == 0 and same_end
        before = self.run.settings.timeout
        self.longer = before > 0 and (timeout == 0 or timeout > before)

    @property
    def started(self) -> str:
        """When the run began, as run.json says it."""
        return self.run.started

    def check(self, now: Identity, *, devices_known: bool) -> None:
        """Raises SettingsError where the run that goes on is another one. devices_known: workers may report them later.
        A run that ended before it knew its devices has no results."""
        before = dict(self.run.identity)
        if not devices_known or not before.get("devices"):
            before["devices"] = now["devices"]
        check(_OPTION, str(self._folder), before, now, "resume", _ADVICE)

    def without_reruns(self, file: IO[bytes]) -> IO[bytes]:
        """The results file, locked, without what has to run again: lines that are damaged, cases that have several
        results, cases that the run did not select, cases that a shorter time limit ended, and checks of a test, of
        which some may be missing. Raises OSError, and SettingsError where the list of its cases cannot be used."""
        lines = list(self._lines())
        found = [id for id, _ in lines]
        ended = {id for id, kind in lines if self.longer and kind == TIMEOUT}
        items = self._items(bool(found))
        wrong = faults(items, (id for id in found if id), self.run.without_result)
        missing = wrong.missing if self.finished else ()
        damaged = sum(id == "" for id in found)
        self.remarks = [f"{line}; they run again" for line in fault_lines(replace(wrong, missing=missing))]
        if damaged:
            self.remarks.append(
                f"it has {damaged:,} line{'s' * (damaged > 1)} that cannot be read; their cases run again"
            )
        if ended:
            self.remarks.append(f"{len(ended):,} of its cases took longer than its --probe-timeout; they run again")
        self.finished = self.finished and not self.remarks and None not in found
        again = {*wrong.doubled, *wrong.foreign, *ended}
        keep = [bool(id) and id not in again and (self.finished or not is_of_test(str(id))) for id in found]
        if all(keep):
            return file
        path = temporary_path(self._path)
        new = path.open("ab", buffering=0)
        try_lock(new)
        with open_regular(self._path) as old:
            new.writelines(line for line, stays in zip(old, keep, strict=True) if stays)
        path.replace(self._path)
        file.close()
        return new

    def _lines(self) -> Iterator[tuple[str | None, str]]:
        """The id of each line and its kind: the id is "" where it cannot be read, None where it was cut off at the
        end."""
        decoder = json_decoder(Result)
        with open_regular(self._path) as file:
            yield from (_line(decoder, line) for line in file)

    def _items(self, has_results: bool) -> Items:
        """The items that the run selected; none where it ended before it knew them."""
        if not has_results and self.run.selected is None:
            return Items(())
        try:
            return read_items(self._folder, self.run.selected)
        except OSError as error:
            wanted = f"{ITEMS}, the list of its cases, cannot be read ({error.strerror})"
        except ResultsError as error:
            wanted = str(error)
        raise SettingsError(_OPTION, str(self._folder), f"{wanted}; give a new folder")

    def results(self, size: int) -> Iterator[Result]:
        """The results in the first size bytes of the file. Raises ResultsError where a line is no result of ours."""
        decoder = json_decoder(Result)
        with open_regular(self._path) as file:
            for number, line in enumerate(file, 1):
                size -= len(line)
                if size < 0:
                    return
                yield _decoded(decoder, line, f"{self._path}:{number}")

    def names(self, size: int) -> frozenset[str]:
        """The portable ids in the first bytes of the file. Raises ResultsError."""
        return frozenset(ids_in(self._path, size))

    @property
    def size(self) -> int:
        return self._path.stat().st_size


def _line(decoder: msgspec.json.Decoder[Result], line: bytes) -> tuple[str | None, str]:
    if not line.endswith(b"\n"):
        return None, ""
    try:
        result = decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "", ""
    return result.id, result.kind


def _decoded(decoder: msgspec.json.Decoder[Result], line: bytes, where: str) -> Result:
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ResultsError(where, str(error)) from None
