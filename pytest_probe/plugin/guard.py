"""In each process that runs cases: a file says what runs, and a time limit ends what does not end."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext

import pytest

from pytest_probe.model.result import AnnouncedCall
from pytest_probe.model.run import side_listener
from pytest_probe.plugin.feature import TimeLimit
from pytest_probe.plugin.items import NoticeItem, ProbeItem
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.reports.running_case import MAIN, TIMER, RunningFile, file_of

# With what a worker ends that has lost its device: EX_UNAVAILABLE.
LOST = 69


class Guard:
    """Notes each item, and each side of its case, in a file: None where nobody would survive to read it."""

    def __init__(self, probe: ProcessSession, file: RunningFile | None, limit: TimeLimit | None) -> None:
        self._probe = probe
        self._file = file
        self._limit = limit
        self._limited = nullcontext if limit is None else limit.case
        probe.use_guard(self._limited, nullcontext if limit is None else limit.suspended, self._call)

    @classmethod
    def of(cls, probe: ProcessSession) -> Guard:
        """This process's."""
        folder, worker = probe.running_folder, getattr(probe.config, "workerinput", None)
        file = stacks = None
        if folder is not None:
            file = RunningFile(file_of(folder, MAIN if worker is None else worker["workerid"]))
            stacks = folder / TIMER if worker is None else None
        limits = (feature.limit(file, stacks) for feature in probe.features)
        return cls(probe, file, next((limit for limit in limits if limit is not None), None))

    @contextmanager
    def _call(self, call: AnnouncedCall) -> Iterator[None]:
        """This call is made in here: of a search within a time limit of its own."""
        if self._file is not None:
            self._file.call(call)
        try:
            with self._limited() if call.is_drawn else nullcontext():
                yield
        finally:
            if self._file is not None:
                self._file.call(None)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        if self._file is None:
            return (yield)
        folded = item.folded if isinstance(item, ProbeItem) else 0
        self._file.begin(item.nodeid, str(item.portable_id) if isinstance(item, NoticeItem) else "", folded)
        with side_listener(self._file.side):
            found = yield
        self._file.end()
        if self._probe.device_lost and hasattr(self._probe.config, "workerinput"):
            os._exit(LOST)  # all is reported; the worker that replaces this one has the device anew
        return found

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        if self._limit is not None:
            self._limit.close()
        if self._file is not None:
            self._file.close()
