"""What a feature may do in a run: a class of its plugin.py, which the table of options names, fills what it needs.

A feature is a plugin of pytest's as well. For what pytest has a hook for it has that hook; the methods here are for
what pytest does not know. Those of all features are called in the order of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from msgspec import Struct

if TYPE_CHECKING:
    from pytest_probe.check.kept import ReferenceCache
    from pytest_probe.check.outcome import Checked, Measuring
    from pytest_probe.model.collective import RankPool
    from pytest_probe.model.dump import Dump
    from pytest_probe.model.result import OtherRun, PortableId, Result
    from pytest_probe.plugin.items import NoticeItem
    from pytest_probe.plugin.judged import Judged
    from pytest_probe.plugin.reporting import Reporting
    from pytest_probe.plugin.session import Probe
    from pytest_probe.reports.results_file import EarlierResults, Identity
    from pytest_probe.reports.running import RunningFile


class Summary(Struct, frozen=True):
    """What a feature says at the end of a run: lines of the summary, the most important one first; a warning that
    nobody may overlook, "" for none; lines behind the summary."""

    lines: Sequence[str] = ()
    alarm: str = ""
    behind: Sequence[str] = ()


class TimeLimit(Protocol):
    """What ends a process in which a case takes too long."""

    def case(self) -> AbstractContextManager[None]:
        """One case runs in here, with all its runs."""

    def suspended(self) -> AbstractContextManager[None]:
        """The case waits in here for another process."""

    def close(self) -> None:
        """No case runs any more."""


class Feature:
    """One feature in one process of a run, made where the run has it."""

    # Does it need what run.json says, and so the devices? Do cases carry what plots draw, or the measures that
    # msprobe's files hold, or what a baseline keeps?
    needs_run = plots = measures = keeps = False
    # Do inputs differ between the runs of a case? Has each device one worker only? Do items keep their order?
    draws_anew = one_worker_a_device = in_order = False
    # Does the run go on with an earlier one?
    goes_on = False
    # Names of --probe-standard that it judges by, with what each looks at; the standard of the run's checkers, where
    # that of the run is the feature's own.
    standards: Mapping[str, str] = {}
    standard = ""
    # Options whose files this run writes itself.
    written: Sequence[str] = ()
    # Is it a part of a run? Has it no items, as it should be? item_places: in the whole run, by node id.
    is_part = empty = False
    item_places: Mapping[str, int] = {}
    # What makes the calls of records on the device and in float64, as modules; "" for the records' own framework.
    calls_by = ("", "")
    # What the notes of each result say of this process.
    remark = ""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe

    def prepare(self) -> None:
        """Before anything is collected or written, in all processes. Raises SettingsError."""

    @property
    def other(self) -> OtherRun | None:
        """What this run is compared with."""
        return None

    # In the processes that run items.

    @property
    def cache(self) -> ReferenceCache | None:
        """What keeps numbers of the reference side."""
        return None

    @property
    def measuring(self) -> Measuring | None:
        """What measures cases."""
        return None

    @property
    def collects(self) -> bool:
        """Has it items that belong to no dump?"""
        return False

    def items(self, parent: pytest.Collector, dump: Dump) -> Iterator[NoticeItem] | None:
        """Those of a dump in place of its cases; None for its cases."""
        return None

    def select(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Change which items run."""

    def judge(self, judged: Judged) -> None:
        """Judge a case further, behind its standard."""

    def further(self, checked: Checked) -> Checked:
        """Judge a drawn call further, in the same way."""
        return checked

    def written_at(self, path: Path) -> Path:
        """Where this process writes a file of --probe-out."""
        return path

    def limit(self, file: RunningFile | None, stacks: Path | None) -> TimeLimit | None:
        """file says what runs. stacks have to outlast the process there; None where another process survives."""
        return None

    # In the process that hands out items.

    @property
    def elsewhere(self) -> bool:
        """Do items run on other machines?"""
        return False

    def needs_devices(self) -> bool:
        """Must the devices be known before other processes say what theirs are?"""
        return False

    def devices(self) -> list[dict[str, str]]:
        """Those of these machines."""
        return []

    @property
    def rank_pool(self) -> RankPool | None:
        """What starts processes of ranks there; None for this machine."""
        return None

    def for_workers(self) -> dict[str, Any]:
        """What each worker finds in its workerinput."""
        return {}

    def item_of(self, nodeid: str) -> tuple[Path, str] | None:
        """What stands for the dump of an item that is the feature's own, and the item's name."""
        return None

    def command(self, path: Path, identity: PortableId, device: str | None) -> str | None:
        """The command that runs such an item again."""
        return None

    # In the process that reports.

    @property
    def earlier(self) -> EarlierResults | None:
        """The results that this run goes on behind."""
        return None

    def header(self) -> Iterable[str]:
        """Lines of pytest's header, behind the conditions of the run."""
        return ()

    def decides(self) -> str:
        """How it changes what the standard decides, for the header."""
        return ""

    def begin(self, reporting: Reporting) -> None:
        """The run's facts are known, its files are not open yet. Raises SettingsError."""

    def check(self, identity: Identity) -> None:
        """Workers have said what the devices are. Raises SettingsError."""

    def report(self, report: pytest.TestReport) -> None:
        """A report came in, which carries its results."""

    def add(self, result: Result) -> None:
        """A case has its result."""

    def compared(self, result: Result) -> bool | None:
        """Does the other side have what this case is compared with? None where it is compared with nothing."""
        return None

    def summary(self, width: int) -> Summary:
        """width: the columns of the terminal."""
        return Summary()

    def end(self, reporting: Reporting) -> None:
        """All results are there. What is wrong now fails the run."""

    def tables(self, folder: Path) -> Iterable[Path]:
        """Write files into --probe-out that its results file has all of. Raises OSError."""
        return ()

    def close(self, reporting: Reporting) -> None:
        """The run's facts are complete, and the results are on the disk."""
