"""The gate of a run, in the process that reports: opened before anything is collected, given each result, closed at the
end.

The controller reads the file once and gives its content to the workers, so a file that changes during the run changes
no verdict. Only the controller writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pytest_probe.errors import SettingsError
from pytest_probe.features.gate.baseline import (
    OPTION,
    UPDATE,
    Baseline,
    Comparable,
    Header,
    check,
    comparable,
    differences,
)
from pytest_probe.features.gate.gate import Gate
from pytest_probe.features.gate.report import GateTally
from pytest_probe.features.gate.update import BaselineWriteError, UpdateCounts, changes, check_writable, write
from pytest_probe.model.baseline import Compared
from pytest_probe.model.dump import Dump
from pytest_probe.model.result import PortableId, Result
from pytest_probe.reports.terminal import count
from pytest_probe.settings import Settings


class GateRun:
    """Raises SettingsError where the baseline cannot be used."""

    def __init__(
        self, settings: Settings, run: Mapping[str, Any], dumps: Iterable[tuple[str, Dump]], workers: int
    ) -> None:
        assert settings.baseline is not None
        self._settings = settings
        self._path = settings.baseline
        self._header = Header.of(run, workers)
        self._before = _before(settings)
        self._tally = GateTally()
        self._found: dict[str, Compared] = {}
        self._ran: set[str] = set()
        self._vanished: list[str] = []
        self.updated = ""
        if self._before is not None:
            check(self._path, self._before.header, run["identity"])
            _check_times(settings, self._before)
            self._vanished = sorted(_vanished(self._before, dumps))
        self.gate = _gate_of(settings, self._before, self._comparable())

    def _comparable(self) -> Comparable:
        return Comparable() if self._before is None else comparable(self._before.header, self._header)

    def carried(self) -> dict[str, Any]:
        """The gate as a worker is handed it: the file may be another one when the worker starts."""
        found = self._comparable()
        content = "" if self._before is None else self._before.encoded().decode()
        return {"content": content, "same_device": found.same_device, "others": sorted(found.others)}

    def add(self, result: Result) -> None:
        """Count a result; an update keeps what it holds."""
        self._tally.add(result)
        if result.gate is not None:
            self._ran.add(result.id)
            if self._settings.update:
                self._found[result.id] = result.gate

    def environment(self) -> str:
        """What differs between the environments, loudly; "" where nothing does."""
        found = [] if self._before is None else differences(self._before.header, self._header)
        return f"ANOTHER ENVIRONMENT than the baseline's: {', '.join(found)}" if found else ""

    def lines(self, width: int) -> list[str]:
        """The summary: counts first."""
        if self._before is None:
            return [self.updated] if self.updated else []
        counts = f"gate: {self._tally.counts(len(self._vanished))} ({self._path.name})"
        bits = self._tally.bits_line() or "bits: not compared, since the device, its threads or the inputs are others"
        shown = [bits] if self._tally.compared and self._settings.judges else []
        updated = [self.updated] if self.updated else []
        return [counts, *shown, *updated, *self._tally.lines(self._vanished, width)]

    def close(self) -> Iterator[str]:
        """Write the baseline where it is asked for. Yields what fails the run besides its items."""
        if self._settings.update:
            yield from self._write()
            return
        strict = self._settings.strict
        if strict and self._vanished:
            yield f"{count(len(self._vanished), 'case')} of the baseline vanished, which --probe-strict does not allow"
        if strict and self._tally.changes["gone"]:
            gone = count(self._tally.changes["gone"], "case")
            yield f"{gone} of the baseline cannot be judged any more, which --probe-strict does not allow"
        if self._before is None or not self._ran:
            return
        # Cases that the baseline has; those that changed are not compared.
        known = len(self._ran & self._before.cases.keys())
        if known == self._tally.changes["changed"] and (self._everything_is_new() or not self._left()):
            labels = ", ".join(sorted({PortableId.parse(id).label for id in self._before.cases})[:3])
            found = f"it is of {labels}" if labels else "it has no case"
            yield (
                f"{self._path} has none of this run's cases as they are now, and nothing was compared: {found}; give "
                f"the --probe-dump that it was written with, or {UPDATE}"
            )

    def _everything_is_new(self) -> bool:
        """Has it no case of these dumps at all? One new case that was selected alone is no mistake."""
        assert self._before is not None
        labels = {PortableId.parse(id).label for id in self._before.cases}
        return bool(labels) and labels.isdisjoint(PortableId.parse(id).label for id in self._ran) and bool(self._ran)

    def _left(self) -> int:
        """How many of the baseline's cases did not run, though they may."""
        if self._before is None:
            return 0
        return sum(id not in self._ran for id in self._before.cases) - len(self._vanished)

    def _write(self) -> Iterator[str]:
        whole = not self._left()
        # A run that leaves cases out leaves their lines alone.
        vanished = frozenset(self._vanished if whole else ())
        if not self._found and not vanished:
            yield f"{self._path} was not written: no case ran"
            return
        changed = changes(self._before, self._header, self._found, vanished, strict=self._settings.strict)
        try:
            self.updated = _words(self._path.name, write(self._path, self._header, changed, whole=whole))
        except BaselineWriteError as error:
            yield f"{self._path} was not written: {error}"


def _check_times(settings: Settings, before: Baseline) -> None:
    """Raises SettingsError where a limit is asked for and there is nothing that it limits."""
    asked = settings.times and settings.time_limit is not None and settings.benchmark is None
    if asked and not settings.update and not before.has_times:
        wanted = f"it has no times for --probe-time-limit; a run with --probe-mode=acc,time and {UPDATE} adds them"
        raise SettingsError(OPTION, str(settings.baseline), wanted)


def _gate_of(settings: Settings, before: Baseline | None, found: Comparable) -> Gate:
    return Gate(before, found, settings.update, settings.strict, settings.judges)


def gate_in_worker(settings: Settings, carried: Mapping[str, Any]) -> Gate:
    """The gate that the controller handed over."""
    content = carried["content"].encode()
    before = Baseline.parse(content, str(settings.baseline)) if content else None
    return _gate_of(settings, before, Comparable(carried["same_device"], frozenset(carried["others"])))


def _before(settings: Settings) -> Baseline | None:
    """The baseline, None where an update will make it. Raises SettingsError where an update cannot write it."""
    path = settings.baseline
    assert path is not None
    if settings.update:
        try:
            check_writable(path)
        except OSError as error:
            raise SettingsError(OPTION, str(path), f"{error.strerror}, and {UPDATE} writes it") from None
    if settings.update and (not path.exists() or (path.is_file() and not path.stat().st_size)):
        return None
    return Baseline.read(path)


def _vanished(before: Baseline, dumps: Iterable[tuple[str, Dump]]) -> Iterator[str]:
    """Ids of cases whose record is not in its dump any more; none of a damaged dump, where nobody knows."""
    names = {
        label: {f"{record.name}.{direction}" for record in dump.records for direction in record.directions}
        for label, dump in dumps
        if not dump.damage
    }
    for id in before.cases:
        identity = PortableId.parse(id)
        if identity.label in names and identity.entry not in names[identity.label]:
            yield id


def _words(name: str, written: UpdateCounts) -> str:
    counted = (("added", written.added), ("rewritten", written.rewritten), ("removed", written.removed))
    parts = [f"{number:,} {word}" for word, number in counted if number]
    return f"baseline {name}: {count(written.cases, 'case')}, {', '.join(parts) or 'none moved'}"
