"""junit's file while items run: without workers nobody survives a crash. pytest writes it anew at the end.

It holds each item that ran, and the one that runs as an error, which it is if the process ends there.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, SubElement, fromstring, tostring

import pytest

from pytest_probe.system.files import check_replaceable

_HEAD = b'<?xml version="1.0" encoding="utf-8"?>\n<testsuites><testsuite name="pytest" errors="1">'
_TAIL = b"</testsuite></testsuites>\n"


class _Ran(bytes):
    """Stands for an item in pytest's list: elements take a multiple of the memory of their text."""

    __slots__ = ()

    def to_xml(self) -> Element:
        return fromstring(self)


class JunitFile:
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        plugins: Any = session.config.pluginmanager
        self._junit = plugins.get_plugin("junitxml")
        self._xml = session.config.stash[self._junit.xml_key]
        self._path = Path(self._xml.logfile)
        self._ran = self._end = 0

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        *classes, name = self._junit.mangle_test_address(nodeid)
        case = Element("testcase", classname=".".join(classes), name=name)
        SubElement(case, "error", message="the process ended while this item ran")
        self._write([], [tostring(case)])

    def pytest_runtest_logfinish(self) -> None:
        reporters = self._xml.node_reporters_ordered
        found = [_Ran(tostring(each.to_xml())) for each in reporters[self._ran :]]
        reporters[self._ran :] = found
        self._ran += len(found)
        self._write(found, [])

    def _write(self, ran: Sequence[bytes], running: Sequence[bytes]) -> None:
        """A file that cannot be written is found when pytest writes it."""
        with suppress(OSError):
            check_replaceable(self._path)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("r+b" if self._end else "wb") as file:
                file.seek(self._end)
                self._end += file.write(b"".join([b"" if self._end else _HEAD, *ran]))
                file.write(b"".join([*running, _TAIL]))
                file.truncate()
