"""--probe-listen: each call that a running program sends becomes an item, in a loop of its own."""

from __future__ import annotations

import errno
import importlib.util
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from msgspec import Meta, Struct
from msgspec.structs import replace

from pytest_probe.capture.config import content_of
from pytest_probe.capture.online.address import (
    NEEDS_GRPC,
    NEEDS_TLS,
    WANTED,
    Folder,
    HostPort,
    Listen,
    address,
    of_msprobe,
)
from pytest_probe.capture.online.frames import certificates
from pytest_probe.capture.online.message import Entry, NoMessage
from pytest_probe.check import floating_dtypes
from pytest_probe.errors import SettingsError
from pytest_probe.features.online.folder_source import FolderSource, Received
from pytest_probe.features.online.received import BesideDevice, Dumps, compared_by_rank
from pytest_probe.model.dump import Dump
from pytest_probe.model.run import RECORDED
from pytest_probe.option_types import Folder as FolderOption
from pytest_probe.option_types import Given, Size, Type
from pytest_probe.options import NAMED
from pytest_probe.plugin.collectors import ArrivingItems
from pytest_probe.plugin.feature import Feature, Summary
from pytest_probe.plugin.item_verdict import ItemVerdict
from pytest_probe.plugin.items import ProbeItem
from pytest_probe.plugin.report_results import OUTCOMES
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.reports.terminal import count
from pytest_probe.selection import select
from pytest_probe.standards.tools import COMPARES, DEFAULT
from pytest_probe.system.decoding import decode

if TYPE_CHECKING:
    from pytest_probe.plugin.reporting import Reporting


_SECTION = "run_ut"


class _RunUt(Struct, frozen=True):
    """msprobe's section of its checker, as far as it listens."""

    is_online: bool = False
    nfs_path: str = ""
    host: str = ""
    port: Annotated[int, Meta(le=65535)] = -1
    rank_list: tuple[int, ...] = ()
    tls_path: str = ""
    white_list: tuple[str, ...] = ()
    black_list: tuple[str, ...] = ()


class Listening(Type):
    def read(self, given: Given) -> Listen | None:
        """Raises SettingsError for any other text, for a port where gRPC is not installed, and for one that others
        reach where there are no certificates."""
        text, keys = given.keys("tls", "limit")
        if not text:
            return None
        asked = address(text)
        found = _of_file(given.of(text)) if text.endswith(".json") else None if asked is None else Listen(asked)
        if found is None:
            raise given.wrong(f"{WANTED}, or msprobe's config.json")
        port = found.address
        if not isinstance(port, HostPort):
            if keys:
                raise given.wrong(f"{' and '.join(keys)} is for HOST:PORT; leave it out")
            return found
        if importlib.util.find_spec("grpc") is None:
            raise given.wrong(NEEDS_GRPC)
        if "tls" in keys:
            found = replace(found, tls=str(FolderOption().read(given.of(keys["tls"]))))
        if "limit" in keys:
            found = replace(found, limit=Size().read(given.of(keys["limit"])))
        if not port.is_loopback and not found.tls:
            raise given.wrong(f"{NEEDS_TLS}: {text},tls=DIR")
        return found

    def plain(self, value: Listen | None) -> str | None:
        return None if value is None else str(value)


def _of_file(given: Given) -> Listen:
    """What msprobe's config.json says."""
    path = given.path
    assert path is not None
    section = content_of(path).get(_SECTION)
    if not isinstance(section, dict):
        raise given.wrong(f"it has no section {_SECTION}, as msprobe's config.json has", str(path))
    section = decode(section, _RunUt, lambda steps: f"{given.name}: {path}: {_SECTION}")
    found = address(of_msprobe(section.nfs_path, section.host, section.port))
    if not section.is_online or found is None:
        wanted = f"its section {_SECTION} must have is_online true, and nfs_path, or host and port"
        raise given.wrong(wanted, str(path))
    lists = section.white_list, section.black_list
    return Listen(found, section.tls_path, section.rank_list, *lists)


_OPTION = NAMED["listen"].flag
# Seconds between two looks where nothing waits.
_LOOK_SECONDS = 0.05
# Names of entries that the summary shows.
_SHOWN = 5
# Where the calls of failing items are kept: in --probe-out, and in a run without it.
_KEPT, _FAILED = "received", "failed"


class _Next(pytest.Item):
    """Stands for the item that may come next: what the session has set up stays."""

    def runtest(self) -> None:
        raise NotImplementedError


class Online(Feature):
    """The loop, and what it says at the end."""

    # "no items": nothing may come.
    traits = frozenset({"no items", "in order"})

    def __init__(self, probe: ProcessSession) -> None:
        super().__init__(probe)
        self._source: FolderSource
        self._private = Path()
        self._not_run: list[str] = []
        self._lost: list[str] = []
        self._reporting: Reporting | None = None
        self._beside: BesideDevice | None = None
        self._parents: dict[str, ArrivingItems] = {}
        # Of the entry that is judged now: the items that have no result yet, and what happens when all have.
        self._left = 0
        self._failed = False
        self._end: Callable[[], None] = lambda: None

    def prepare(self) -> None:
        if self.probe.config.option.collectonly:
            wanted = "calls come while the run goes on, and nothing can be collected before; leave one of the two out"
            raise SettingsError(_OPTION, str(self.probe.settings.listen), wanted)
        self._private = Path(tempfile.mkdtemp(prefix="pytest-probe-online-"))
        device = next(iter(self.probe.settings.values["devices"]), RECORDED)
        if device != RECORDED:
            self._beside = BesideDevice(self.probe.checker_of(device), self.probe.settings.out)
        self._source = _opened(self.probe, self._private)
        self._dumps = Dumps(self._private / "calls", self.probe.registry.readers)

    def begin(self, reporting: Reporting) -> None:
        self._reporting = None if self.probe.settings.out is None else reporting

    def header(self) -> Iterator[str]:
        yield f"listening at {self.probe.settings.listen}: items run as calls come, until all programs have ended"

    def decides(self) -> str:
        return "" if self._beside is None else f"compared with {self._beside.name}"

    def judge(self, judged: ItemVerdict) -> None:
        if self._beside is not None:
            checked = judged.checked
            judged.verdict = self._beside.judge(checked.case, judged.verdict, judged.identity, judged.api)

    def tables(self, folder: Path) -> Iterable[Path]:
        if self._beside is None:
            return ()
        standard = self.probe.settings.standard
        standard = standard if standard in COMPARES else DEFAULT
        stamp = datetime.now().strftime("%Y%m%d%H%M%S")
        return compared_by_rank(folder, sorted(self._source.senders.steps), stamp, standard)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> bool:
        return True

    @pytest.hookimpl
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.probe.warm_up()
        while not self._source.finished():
            try:
                received = self._source.take()
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE):
                    raise session.Interrupted(f"{error.filename} cannot be read ({error.strerror})") from None
                received = None
            if received is None:
                time.sleep(_LOOK_SECONDS)
                continue
            self._run(session, received)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
        return True

    def _run(self, session: pytest.Session, received: Received) -> None:
        assert self.probe.settings.listen is not None
        ranks = self.probe.settings.listen.ranks
        if ranks and received.entry.sender.rank not in ranks:
            self._source.judged(received)
            return
        try:
            dump = self._dumps.read(received)
        except NoMessage as error:
            self._source.refuse(str(error))
            self._source.judged(received)
            return
        except OSError as error:
            session.shouldstop = f"{self._private} cannot be written ({error.strerror})"
            return
        items: list[pytest.Item] = [*self._items(session, received.entry, dump)]
        # -k and -m.
        marks: Any = session.config.pluginmanager.get_plugin("mark")
        marks.pytest_collection_modifyitems(items=items, config=session.config)
        session.testscollected += len(items)
        after = _Next.from_parent(session, name="next")
        self._left, self._failed = len(items), False
        self._end = lambda: self._judged(session, received, dump.path.parent)
        for item in items:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        if not items:
            self._end()
        shutil.rmtree(dump.path.parent, ignore_errors=True)

    def _judged(self, session: pytest.Session, received: Received, folder: Path) -> None:
        """The results of an entry are written: a checker that takes over must not judge it again. Where they are not,
        the entry stays for the next one."""
        trouble, place = "" if self._reporting is None else self._reporting.writer.trouble, self._place(received.entry)
        try:
            if self._failed and not trouble:
                shutil.copytree(folder, place, dirs_exist_ok=True)
        except (OSError, shutil.Error) as error:
            trouble = f"{place} cannot be written ({error})"
        if trouble:
            session.shouldstop = trouble
        else:
            self._source.judged(received)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.failed
        if report.when == "teardown" and report.outcome in OUTCOMES:
            self._left -= 1
            if not self._left:
                self._end()

    def _items(self, session: pytest.Session, entry: Entry, dump: Dump) -> Iterator[ProbeItem]:
        label = f"rank{entry.sender.rank}/step{entry.step}"
        if label not in self._parents:
            path = self._private / label
            self.probe.dumps.take_over(path, label, dump)
            self._parents[label] = ArrivingItems.from_parent(
                session, name=label, path=path, nodeid=label, probe=self.probe, dump_path=path
            )
        target = shlex.quote(str(self._place(entry) / "dump.json"))
        for record, direction, dtype in select(dump, self.probe.settings.selection, floating_dtypes):
            if direction == entry.direction:
                item: ProbeItem = ProbeItem.from_parent(
                    self._parents[label],
                    dump=dump,
                    record=record,
                    direction=direction,
                    dtype=dtype,
                    keyword=dtype,
                )
                item.command = f"--probe-dump={target} --probe-api={shlex.quote(item.name)}"
                item.place = entry.call
                yield item

    def _place(self, entry: Entry) -> Path:
        """Where the call of a failing item is kept."""
        out = self.probe.settings.out
        kept = self._private / _FAILED if out is None else out / _KEPT
        return kept / f"rank{entry.sender.rank}" / f"step{entry.step}" / f"call{entry.call}"

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self._not_run = self._source.waiting()
        self._lost = self._source.senders.lost(self._source.done) if self._source.finished() else []
        self._source.close()

    def end(self, reporting: Reporting) -> None:
        for line in self._lost:
            reporting.trouble(line)

    def summary(self, width: int) -> Summary:
        source = self._source
        lines = [
            f"rank {rank}: {count(len(steps), 'step')}, {min(steps)}" + f" to {max(steps)}" * (len(steps) > 1)
            for rank, steps in sorted(source.senders.steps.items())
        ]
        if left_out := sum(each.left_out for each in source.senders.goodbyes.values()):
            lines.append(f"{left_out:,} calls and backwards were left out by the programs (online_policy)")
        lines += _some("not run, though it came", self._not_run)
        return Summary(lines, "; ".join(_some("refused", source.refused)))

    def pytest_unconfigure(self) -> None:
        if self._private != Path():
            kept = (self._private / _FAILED).exists()
            shutil.rmtree(self._private / "calls" if kept else self._private, ignore_errors=True)


def _opened(probe: ProcessSession, private: Path) -> FolderSource:
    """Raises SettingsError."""
    assert probe.settings.listen is not None
    listen, out, folder = probe.settings.listen.address, probe.settings.out, private / "came"
    try:
        if isinstance(listen, Folder):
            folder = listen.path
            return FolderSource(folder)
        if out is not None:  # the next run finds there what came, if this one is killed
            host = listen.host.strip("[]").replace(":", ".")
            folder = out.absolute().with_name(f"probe-listen-{host}-{listen.port}")
        # gRPC is an extra.
        from pytest_probe.features.online.receiver import Receiver

        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != private.stat().st_uid:
            raise PermissionError(errno.EPERM, "it is a link, or another user's")
        asked = probe.settings.listen
        keys = certificates(Path(asked.tls), "server") if asked.tls else None
        return Receiver(listen, folder, limit=asked.limit, keys=keys)
    except OSError as error:
        wanted = f"give a folder that can be written; {folder}: {error.strerror or error}"
        raise SettingsError(_OPTION, str(listen), wanted) from None


def _some(what: str, names: list[str]) -> list[str]:
    if not names:
        return []
    more = f", and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return [f"{what}: {', '.join(names[:_SHOWN])}{more}"]
