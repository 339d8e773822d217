"""What junit shows with an item: properties named `probe.*`, builtins only (xdist and XML take nothing else). And its
file while items run: without workers nobody survives a crash, so it holds each item that ran, and the one that runs as
an error, which it is if the process ends there. pytest writes it anew at the end.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, SubElement, fromstring, tostring

import pytest

from pytest_probe.model.result import Result, number, plain, rank
from pytest_probe.reports.groups import Groups
from pytest_probe.system.files import check_replaceable
from pytest_probe.system.text import printable

_PREFIX = "probe."
_TEXTS = ("id", "api", "direction", "dtype", "device", "verdict", "standard", "reason", "kind")
_METRICS = {
    name: _PREFIX + name for name in ("max_ulp", "max_abs", "max_rel", "noise_ratio", "noise_rms", "spread_ulp")
}


def other_properties(found: Iterable[tuple[str, object]]) -> list[tuple[str, object]]:
    """The properties that are not ours."""
    return [pair for pair in found if not pair[0].startswith(_PREFIX)]


def properties(result: Result) -> list[tuple[str, str | int | float]]:
    """The properties of a result: its texts, of each metric the worst over all outputs, what the case takes, how it
    compares with a baseline or another side, and what the output that decides looks like."""
    own = ((name, str(getattr(result, name))) for name in _TEXTS)
    found: list[tuple[str, str | int | float]] = [_shared(name, text) for name, text in own if text]
    if result.is_emulated:
        found.append((_PREFIX + "emulated", "16 bit in float32"))
    if result.folded:
        found.append((_PREFIX + "folded", f"+{result.folded}"))
    for metric, name in _METRICS.items():
        values = [number(output.metrics[metric]) for output in result.outputs if metric in output.metrics]
        if values:
            # NaN is above all.
            found.append((name, plain(max(values, key=rank))))
    more: dict[str, str | int | float | None] = {}
    if result.time is not None:
        beside = result.time.beside
        more |= {"time_us": result.time.median_us, "time_ratio": None if beside is None else beside.ratio}
    if result.memory is not None:
        more["peak_bytes"] = result.memory.peak_bytes
    if result.gate is not None:
        more |= {"gate": result.gate.change, "gate_reason": result.gate.reason}
    if (against := result.against) is not None:
        texts = {"against": against.status, "suspect": against.suspect, "difference": against.difference}
        more |= {name: printable(text) for name, text in texts.items()}
    if result.decisive and (about := result.decisive[0].diagnosis) is not None:
        more |= {"wrong": about.wrong or None, "where": about.where, "cause": about.cause, "cause_family": about.family}
    for name, said in more.items():
        if said is not None and said != "":
            found.append(_shared(name, said) if isinstance(said, str) else (_PREFIX + name, said))
    return found


def group_properties(groups: Groups) -> Iterator[tuple[str, str]]:
    """The properties of the whole file: a line for each group of errors."""
    yield from ((f"{_PREFIX}group.{number}", printable(line)) for number, line in enumerate(groups.lines(), 1))


@functools.lru_cache(1024)
def _shared(name: str, text: str) -> tuple[str, str]:
    """One pair for all results that have it, since pytest keeps the pairs of each item."""
    return _PREFIX + name, text


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
