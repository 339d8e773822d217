"""What the controller, hosts and their processes send to each other, pickled."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct, field

from pytest_probe.errors import RecordError
from pytest_probe.model.dump import Call, Direction, Dump, Frame, Record
from pytest_probe.reports.running import Ending, Running
from pytest_probe.settings import Settings

# What ends the answers to one message.
END = pickle.dumps(None, pickle.HIGHEST_PROTOCOL)
# The host's number, the number of what was sent (None: it got ready), and what became of it.
Event: TypeAlias = "tuple[int, int | None, Ready | Outcome | NodeLost]"


class Place(Struct, frozen=True):
    """Where a host is: the node's id and name for people, the host's number there, how many hosts it has."""

    node: str
    name: str
    slot: int
    hosts: int

    @property
    def worker(self) -> str:
        """A name of the host's own."""
        return f"{self.node[:8]}-{self.slot}"


class SentDump(Struct, frozen=True):
    """A dump without its records, by its number in the run. shipped: its files go with the cases, since nodes cannot
    read them."""

    number: int
    path: Path
    label: str
    dump: Dump
    shipped: bool = False


class Start(Struct, frozen=True):
    """What a process needs to become one of this run's.

    args, folder and rootdir come from the controller's command line; search_path is its sys.path, conftests are the
    folders of its conftest files. environment are the variables that pytest reads, and OMP_NUM_THREADS, which Ray sets
    where the user has not: None where it is to be unset. worker is what pytest-xdist calls workerinput.
    """

    args: tuple[str, ...]
    folder: str
    rootdir: str
    search_path: tuple[str, ...]
    conftests: tuple[str, ...]
    environment: Mapping[str, str | None]
    settings: Settings
    worker: Mapping[str, Any]


class RunFacts(Struct, frozen=True):
    """What is known once the processes have said what their devices are. worker is added to their workerinput;
    marker a file of --probe-out with its content: a process that reads the same writes there; remark goes into
    the notes of each result.
    """

    worker: Mapping[str, Any] = {}
    marker: tuple[Path, bytes] | None = None
    remark: str = ""


class SentCase(Struct, frozen=True):
    """An item. record is raw. call is the decoded record where the controller decodes it, or why that cannot be: where
    records were folded, and where what decodes them cannot be sent."""

    nodeid: str
    dump: SentDump
    record: Record
    direction: Direction
    dtype: str | None
    words: str | None
    place: int | None
    frames: tuple[Frame, ...] = ()
    modules: tuple[str, ...] = ()
    folded: int = 0
    command: str = ""
    call: Call | RecordError | None = None


class Ready(Struct, frozen=True):
    """A process can run cases. devices describes its device, once a framework; name is the run's name for the device,
    None for the default; trouble: why it cannot; broken: what it wrote to stderr may say more."""

    name: str | None = None
    devices: tuple[Mapping[str, str], ...] = ()
    trouble: str = ""
    broken: bool = False


class ItemReports(Struct, frozen=True):
    """An item, by its place in what was sent, has ended. reports are as pytest serialises them. files are files of
    --probe-out, by their path in it, that the process could not write there."""

    item: int
    reports: list[dict[str, Any]]
    files: Mapping[str, bytes] = field(default_factory=dict)


class Death(Struct, frozen=True):
    """The process died. timed_out: its time limit ended it; said is what it wrote to stderr last."""

    running: Running
    ending: Ending
    timed_out: bool
    said: str


class Outcome(Struct, frozen=True):
    """The work that a host has done: pickled `ItemReports` of the items that ended, and how its process died, None
    where it lives."""

    ran: list[bytes]
    death: Death | None = None


class NodeLost(Struct, frozen=True):
    """A host has gone, with its node or alone."""

    why: str
