"""What a run that ended early left in its folder, for the run that goes on: --probe-resume."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from msgspec.structs import replace

from pytest_probe.errors import ResultsError
from pytest_probe.model.result import Result
from pytest_probe.reports.result_set import RunFolder
from pytest_probe.reports.results_file import RESULTS, RUN, Identity, check, decoded, refused
from pytest_probe.reports.running_case import TIMEOUT
from pytest_probe.reports.selected import ITEMS, Items, fault_lines, faults, is_of_test, read_items
from pytest_probe.system.decoding import json_decoder
from pytest_probe.system.files import open_regular, temporary_path, try_lock

_OPTION = "--probe-resume"
_ADVICE = "give the same, or a new folder"


class Earlier:
    """The run in a folder. Raises SettingsError where its run.json is missing or is none of ours.

    strict and timeout are settings of the run that goes on. finished: every item has its result, the run ended by
    itself, and the same verdicts failed in it. longer: what the time limit ended may have more time now, and runs
    again. remarks: what of its results runs again, and why.
    """

    def __init__(self, folder: Path, *, strict: bool, timeout: float) -> None:
        missing = f"{RUN} cannot be read ({{error.strerror}}), so there is no run to go on with; leave {_OPTION} out"
        self._folder = RunFolder.read(_OPTION, folder, missing)
        self._path = folder / RESULTS
        self.remarks: list[str] = []
        self.run = self._folder.run
        same_end = self.run.settings.get("strict", False) == strict
        self.finished = self.run.finished is not None and self.run.not_run == 0 and same_end
        before = self.run.settings.get("timeout")
        self.longer = isinstance(before, int | float) and before > 0 and (timeout == 0 or timeout > before)

    def check(self, now: Identity, *, devices_known: bool) -> None:
        """Raises SettingsError where the run that goes on is another one. devices_known: workers may report them later.
        A run that ended before it knew its devices has no results."""
        before = dict(self.run.identity)
        if not devices_known or not before.get("devices"):
            before["devices"] = now["devices"]
        check(_OPTION, str(self._folder.path), before, now, "resume", _ADVICE)

    def without_reruns(self, file: IO[bytes]) -> IO[bytes]:
        """The results file, locked, without what has to run again: lines that are damaged, cases that have several
        results, cases that the run did not select, cases that a shorter time limit ended, and checks of a test, of
        which some may be missing. Raises OSError, and SettingsError where the list of its cases cannot be used."""
        lines = list(self._lines())
        found = [id for id, _ in lines]
        ended = {id for id, kind in lines if self.longer and kind == TIMEOUT}
        unread = f"{ITEMS}, the list of its cases, cannot be read ({{error.strerror}}); give a new folder"
        with refused(_OPTION, self._folder.path, unread, "{error}; give a new folder"):
            # Results without a list: its run was none of ours.
            ended_early = self.run.selected is None and not found
            items = Items(()) if ended_early else read_items(self._folder.path, self.run.selected)
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
            for line in file:
                found = "", ""
                with suppress(ResultsError):
                    result = decoded(line, decoder, RESULTS)
                    found = result.id, result.kind
                yield found if line.endswith(b"\n") else (None, "")
