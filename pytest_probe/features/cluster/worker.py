"""The process of a host: pytest, whose items come from the controller.

host.py starts it as `python -m pytest_probe.features.cluster.worker READ WRITE` with the numbers of two pipes.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_probe.errors import ProbeError, RecordError
from pytest_probe.features.cluster.messages import END, ItemReports, Ready, RunFacts, SentCase, SentDump, Start
from pytest_probe.model.dump import Call, Dump, Record
from pytest_probe.plugin.collectors import ArrivingItems
from pytest_probe.plugin.items import ProbeItem
from pytest_probe.plugin.session import STATE, Probe, registry_of
from pytest_probe.system.process import die_with_parent


def main() -> int:
    reader: Connection[Any, Any] = Connection(int(sys.argv[1]), writable=False)
    writer: Connection[Any, Any] = Connection(int(sys.argv[2]), readable=False)
    die_with_parent()
    start: Start = reader.recv()
    sys.path[:] = [*start.search_path, *(path for path in sys.path if path and path not in start.search_path)]
    with suppress(OSError):
        os.chdir(start.folder)
    words = [*start.args, *(folder for folder in start.conftests if os.path.isdir(folder))]
    if os.path.isdir(start.rootdir):
        words.append(f"--rootdir={start.rootdir}")
    worker = _Worker(reader, writer, start)
    status = pytest.main(words, plugins=[worker])
    if not worker.began:
        worker.refuse(f"pytest ended with status {int(status)} before it could take cases", broken=True)
    return 0


class _Worker:
    """A plugin that lets pytest collect nothing and run what comes."""

    def __init__(self, reader: Connection[Any, Any], writer: Connection[Any, Any], start: Start) -> None:
        self._reader, self._writer = reader, writer
        self._start = start
        self.began = False
        self._files = Path(start.worker["probe_files"])
        self._dumps: dict[int, Dump] = {}
        self._into: Path | None = None
        self._reports: list[pytest.TestReport] = []

    def refuse(self, trouble: str, *, broken: bool = False) -> None:
        """Say why no case can run here."""
        self.began = True
        with suppress(OSError):
            self._writer.send(Ready(trouble=trouble, broken=broken))

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self, early_config: Any) -> None:
        early_config.workerinput = dict(self._start.worker)
        early_config.workeroutput = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> None:
        # The controller reports. Not by -p no:terminal, without which pytest does not know -v.
        config.pluginmanager.unregister(config.pluginmanager.getplugin("terminal"))
        config.option.usepdb = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        settings = self._start.settings
        try:
            probe = Probe(config, settings, registry_of(config, settings))
        except ProbeError as error:
            raise self._refused(error) from None
        config.stash[STATE] = probe

    def _known(self, probe: Probe, sent: SentDump) -> Dump:
        """The dump; what was shipped lies in folders of this process."""
        if sent.number not in self._dumps:
            dump = sent.dump
            if sent.shipped:
                folder = self._files / str(sent.number)
                gradients = (folder / "gradients",) if dump.gradient_dirs else ()
                dump = replace(dump, data_dirs=(folder / "tensors",), gradient_dirs=gradients, anywhere=True)
            probe.dumps.take_over(sent.path, sent.label, dump)
            self._dumps[sent.number] = dump
        return self._dumps[sent.number]

    def _take_facts(self, probe: Probe, facts: RunFacts) -> None:
        config: Any = probe.config
        config.workerinput |= facts.worker
        probe.remark = facts.remark
        out, into = probe.settings.out, self._files / "out"
        if out is None or facts.marker is None:
            return
        path, content = facts.marker
        seen = False
        with suppress(OSError):
            seen = path.read_bytes() == content
        if not seen:
            # The process does not see --probe-out: its files go with the results.
            self._into = into
            probe.written_at = lambda path: into / path.relative_to(out)

    def _refused(self, error: ProbeError) -> pytest.UsageError:
        self.refuse(str(error))
        return pytest.UsageError(str(error))

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> bool:
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        probe = session.config.stash[STATE]
        try:
            ready = Ready(probe.device, tuple(probe.described()))
            _ = probe.others  # one that this node cannot read
        except ProbeError as error:
            raise self._refused(error) from None
        self.began = True
        self._writer.send(ready)
        while True:
            try:
                message: RunFacts | list[SentCase] = self._reader.recv()
            except (EOFError, OSError):  # the host has ended, maybe within a message
                return True
            if isinstance(message, RunFacts):
                self._take_facts(probe, message)
                continue
            self._run(session, probe, message)
            self._writer.send_bytes(END)

    def _run(self, session: pytest.Session, probe: Probe, cases: Sequence[SentCase]) -> None:
        items = [*self._items(session, probe, cases)]
        for number, (item, after) in enumerate(pairwise([*items, None])):
            assert item is not None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            reports, self._reports = self._reports, []
            serialised = [
                item.config.hook.pytest_report_to_serializable(config=item.config, report=each) for each in reports
            ]
            # By value: the pickler of connections hands tensors over by shared memory, which ends at this node.
            self._writer.send_bytes(
                pickle.dumps(ItemReports(number, serialised, self._taken()), pickle.HIGHEST_PROTOCOL)
            )

    def _items(self, session: pytest.Session, probe: Probe, cases: Sequence[SentCase]) -> Iterator[ProbeItem]:
        """The item of each case. Cases of one record share the record, and so what the forward left."""
        records = {(case.dump.number, case.record.name): case.record for case in cases}
        parents: dict[int, ArrivingItems] = {}
        for case in cases:
            sent, record = case.dump, records[case.dump.number, case.record.name]
            dump = self._known(probe, sent)
            if sent.number not in parents:
                parents[sent.number] = ArrivingItems.from_parent(
                    session,
                    name=sent.path.name,
                    path=sent.path,
                    nodeid=str(sent.path),
                    probe=probe,
                    dump_path=sent.path,
                )
            item: ProbeItem = ProbeItem.from_parent(
                parents[sent.number],
                dump=_with_record(dump, record, case),
                record=record,
                direction=case.direction,
                dtype=case.dtype,
                words=case.words,
                nodeid=case.nodeid,
            )
            item.folded, item.command, item.place = case.folded, case.command, case.place
            yield item

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(report)

    def _taken(self) -> dict[str, bytes]:
        """The files that this item wrote apart, by their path in --probe-out."""
        if self._into is None or not self._into.exists():
            return {}
        found = {}
        for path in self._into.rglob("*"):
            if path.is_file():
                found[path.relative_to(self._into).as_posix()] = path.read_bytes()
                path.unlink()
        return found


def _with_record(dump: Dump, record: Record, case: SentCase) -> Dump:
    """The dump of one case: with its record, stack and modules."""
    call = case.call

    def decoded(wanted: Record) -> Call:
        if isinstance(call, RecordError):
            raise call
        return dump.decode(wanted) if call is None else call

    return replace(
        dump, records=(record,), stack=lambda entry: case.frames, modules=lambda entry: case.modules, decode=decoded
    )


if __name__ == "__main__":
    sys.exit(main())
