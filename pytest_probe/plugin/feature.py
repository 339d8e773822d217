"""What a feature may do in a run: a class of its plugin.py, which the table of options names, fills what it needs.

A feature is a plugin of pytest's as well. For what pytest has a hook for it has that hook; the methods here are for
what pytest does not know. Those of all features are called in the order of the table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import pytest
from msgspec import Struct

from pytest_probe.model.verdict import SEVERITY

if TYPE_CHECKING:
    from pytest_probe.check.outcome import CaseOutcome
    from pytest_probe.model.collective import RankPool
    from pytest_probe.model.dump import Dump
    from pytest_probe.model.result import Result
    from pytest_probe.plugin.collectors import ProbeFile
    from pytest_probe.plugin.item_verdict import ItemVerdict
    from pytest_probe.plugin.items import NoticeItem
    from pytest_probe.plugin.reporting import Reporting
    from pytest_probe.plugin.session import ProcessSession
    from pytest_probe.reports.result_set import OtherResults
    from pytest_probe.reports.results_file import Identity
    from pytest_probe.reports.running_case import RunningFile


# What a run has by a feature.
Trait: TypeAlias = Literal[
    "needs run",  # it needs what run.json says, and so the devices
    "needs devices",  # they must be known before other processes say what theirs are
    "one worker a device",
    "in order",  # items keep their order
    "collects",  # some items belong to no dump
    "draws anew",  # inputs differ between the runs of a case
    "plots",  # results have what plots draw
    "part",  # it is a part of a run
    "no items",  # it may have none
    "resumes",  # it goes on with an earlier run
]


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


class Machines(Protocol):
    """Other machines, on which the items of a run run."""

    def devices(self) -> list[dict[str, str]]:
        """What their devices are."""

    @property
    def rank_pool(self) -> RankPool:
        """What starts processes of ranks there."""


class Feature:
    """One feature in one process of a run, made where the run has it."""

    # Names of --probe-standard that it judges by, with what each looks at.
    standards: Mapping[str, str] = {}
    # Options whose files this run writes itself.
    written: Sequence[str] = ()
    # The verdicts that `judge` looks at.
    judges: Collection[str] = SEVERITY
    # What makes the calls of records on the device and in float64, as modules; "" for the records' own framework.
    calls_by = ("", "")

    def __init__(self, probe: ProcessSession) -> None:
        self.probe = probe

    @property
    def traits(self) -> Collection[Trait]:
        """What the run has by this feature, as far as it is known now."""
        return ()

    def prepare(self) -> None:
        """Before anything is collected or written, in all processes. Raises SettingsError."""

    @property
    def other(self) -> OtherResults | None:
        """What this run is compared with."""
        return None

    # In the processes that run items.

    @property
    def request(self) -> Mapping[str, Any]:
        """Fields of check.RunRequest that it sets where a checker is made."""
        return {}

    def items(self, parent: ProbeFile, dump: Dump) -> Iterator[NoticeItem] | None:
        """Those of a dump in place of its cases; None for its cases."""
        return None

    def select(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Change which items run."""

    def judge(self, judged: ItemVerdict) -> None:
        """Judge a case further, behind its standard, where its verdict is one of `judges`."""

    def judge_drawn_call(self, checked: CaseOutcome) -> CaseOutcome:
        """Judge a drawn call further, in the same way."""
        return checked

    def limit(self, file: RunningFile | None, stacks: Path | None) -> TimeLimit | None:
        """file says what runs. stacks have to outlast the process there; None where another process survives."""
        return None

    # In the process that hands out items.

    @property
    def machines(self) -> Machines | None:
        """The devices that the items run on; None for this one."""
        return None

    def for_workers(self) -> dict[str, Any]:
        """What each worker finds in its workerinput."""
        return {}

    def own_item(self, nodeid: str, device: str | None) -> tuple[Path, str, str] | None:
        """Of an item that is the feature's own: what stands for its dump, its name, the command that runs it again."""
        return None

    # In the process that reports.

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

    def add(self, result: Result) -> bool | None:
        """A case has its result. Does the other side have what it is compared with? None where there is nothing."""
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
