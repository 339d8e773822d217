"""A dump as pytest collects it: a file of items, in folders and archives."""

from __future__ import annotations

from collections.abc import Container, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_probe import frameworks
from pytest_probe.check import floating_dtypes
from pytest_probe.check.initialisation import initialisation
from pytest_probe.errors import DumpError
from pytest_probe.model.dump import Dump
from pytest_probe.model.verdict import Verdict
from pytest_probe.plugin.items import NoticeItem, ProbeItem
from pytest_probe.plugin.run_dumps import address
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.records import stable_path
from pytest_probe.reports import terminal
from pytest_probe.selection import select
from pytest_probe.system.process import paused_gc
from pytest_probe.system.text import printable_line

if TYPE_CHECKING:
    import pluggy

    from pytest_probe.check import Question
# The item of what is wrong with a dump as a whole.
DAMAGED = "(damaged)"


class _Data(pytest.Collector):
    """Holds dumps, or is one: neither a package nor a place of conftests and tests.

    It is no pytest.Directory, for which pytest loads conftests, and no pytest.File, which --lf passes over where no
    node id begins with its path: see `node_of_file`.
    """

    def __init__(self, *, probe: ProcessSession, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.probe = probe

    @property
    def ihook(self) -> pluggy.HookRelay:
        """Those of the folder above, which may be one in which no conftest counts."""
        assert self.parent is not None
        return self.parent.ihook


class DumpFolder(_Data):
    """A folder of dumps, or on the way to one."""

    @classmethod
    def of(cls, probe: ProcessSession, path: Path, parent: pytest.Collector) -> DumpFolder:
        return cls.from_parent(parent, name=path.name, path=path, nodeid=path.as_posix(), probe=probe)

    def collect(self) -> Iterator[pytest.Collector]:
        for path in self.probe.dumps.below(self.path):
            if self.probe.dumps.is_dump(path):
                yield ProbeFile.of(self.probe, path, self)
            elif self.probe.dumps.inside(path):
                yield ArchiveFile.of(self.probe, path, self)
            else:
                yield DumpFolder.of(self.probe, path, self)


class ArchiveFile(_Data):
    """An archive with dumps that were given, or with files on the way to them."""

    @classmethod
    def of(cls, probe: ProcessSession, path: Path, parent: pytest.Collector) -> ArchiveFile:
        return cls.from_parent(parent, path=path, probe=probe, name=path.name, nodeid=node_of_file(probe, path))

    def collect(self) -> Iterator[pytest.Collector]:
        for dump in self.probe.dumps.inside(self.path):
            name = address(dump).partition("::")[2]
            node = f"{node_of_file(self.probe, self.path)}::{name}"
            yield ProbeFile.from_parent(self, path=self.path, dump_path=dump, probe=self.probe, name=name, nodeid=node)


class _OfDump(_Data):
    """path is a file on the disk, dump_path differs from it where that is an archive."""

    def __init__(self, *, dump_path: Path, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dump_path = dump_path


class ArrivingItems(_OfDump):
    """What items hang under that no dump on this disk has: their records arrive while the run goes on."""

    def collect(self) -> list[pytest.Item]:
        return []


class ProbeFile(_OfDump):
    """A dump. Collecting it never raises: what is wrong with it becomes an item."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.probe.dumps.know(self.dump_path)

    @classmethod
    def of(cls, probe: ProcessSession, path: Path, parent: pytest.Collector) -> ProbeFile:
        node = node_of_file(probe, path)
        return cls.from_parent(parent, path=path, dump_path=path, probe=probe, name=path.name, nodeid=node)

    def collect(self) -> list[pytest.Item]:
        with paused_gc():
            found = list(self._collect())
        for number, item in enumerate(found):
            item.number = number
        return [*found]

    def _collect(self) -> Iterator[NoticeItem]:
        try:
            dump = self.probe.dumps.read(self.dump_path)
        except DumpError as error:
            yield self._notice(DAMAGED, "error", str(error))
            return
        own = (feature.items(self, dump) for feature in self.probe.features)
        items = list(next((found for found in own if found is not None), self.cases(dump)))
        missing = frameworks.unavailable(dump.framework, stored=self.probe.settings.judges_stored)
        if missing and any(item.makes_calls for item in items):
            yield self._notice("(framework)", "error", f"{self.dump_path}: {missing}")
            return
        yield from items
        if dump.damage:
            yield self._notice(DAMAGED, "error", "\n".join(dump.damage))
        elif not dump.records and not items:
            words = "it holds no API calls"
            if dump.skipped:
                advice = "--probe-against compares them"
                if dump.level:
                    advice = f"record with level L1 or mix instead of {dump.level}"
                words += f", only {', '.join(terminal.kinds(dump))}; {advice}"
            yield self._notice("(empty)", "skip", f"{self.dump_path}: {words}", kind="no API calls in the dump")

    def cases(
        self, dump: Dump, question: Question | None = None, apis: Container[str] | None = None
    ) -> Iterator[ProbeItem]:
        """An item for each selected case, of some APIs alone where they are named. question: how its case is run, where
        that is not the plain check."""
        # Do -k or -m speak of dtypes? Only then are the recorded ones worth decoding every record for.
        text = f"{self.config.option.keyword} {self.config.option.markexpr}".lower()
        asked = any(word in text for word in ("dtype", "float", "complex"))
        building = initialisation(dump)
        for record, direction, dtype in select(dump, self.probe.settings.selection, floating_dtypes):
            if apis is not None and f"{record.namespace}.{record.api}" not in apis:
                continue
            keyword = dtype
            if asked and dtype is None and (call := dump.readable(record)) is not None:
                keyword = "+".join(floating_dtypes(call)) or None
            item: ProbeItem = ProbeItem.from_parent(
                self, dump=dump, record=record, direction=direction, dtype=dtype, keyword=keyword, question=question
            )
            item.initialises = record.name in building
            yield item

    def _notice(self, name: str, outcome: str, reason: str, kind: str = "") -> NoticeItem:
        verdict = Verdict(outcome, "", reason, kind)  # type: ignore[arg-type]
        return NoticeItem.from_parent(self, name=name, verdict=verdict)


def node_of_file(probe: ProcessSession, path: Path) -> str:
    """The node id of a file: its path, outside rootdir the absolute one, without the numbers of processes. Those are
    others in the next capture, and last time's results would not be found."""
    root, known = probe.config.rootpath, stable_path(path)
    return printable_line((Path(*known.parts[len(root.parts) :]) if path.is_relative_to(root) else known).as_posix())
