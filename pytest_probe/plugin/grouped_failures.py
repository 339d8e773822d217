"""The failures that the terminal prints: of each group the first in full, of the others one line.

Workers write the whole text of each failure, since none of them knows the groups; junit and other plugins keep it. The
process that reports shortens what the terminal has still to print, when all items have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_probe.model.result import Result
from pytest_probe.plugin.session import VERBOSE
from pytest_probe.reports.groups import Group, GroupKey, GroupMember, Groups, Line
from pytest_probe.reports.terminal import more_line, width_of, wrap

# Cases of a group that are listed, and pytest's value of -r where the user gave none.
_LISTED, _DEFAULT = 20, "fE"
_OTHERS = "the others of this group, each in full with -vv:"


class FirstOfGroup:
    """The text of a failure below the line of its group, and above the lines of the others."""

    def __init__(self, own: Any, group: str, others: str) -> None:
        self._own, self._group, self._others = own, group, others

    @property
    def reprcrash(self) -> Any:
        """What the short summary shows of it: of a worker's death the text itself."""
        return SimpleNamespace(message=self._own) if isinstance(self._own, str) else self._own.reprcrash

    def __str__(self) -> str:
        return f"{self._group}\n\n{self._own}\n\n{_OTHERS}\n{self._others}"

    def toterminal(self, writer: Any) -> None:
        writer.line(f"{self._group}\n")
        if hasattr(self._own, "toterminal"):
            self._own.toterminal(writer)
        else:
            writer.line(str(self._own))
        writer.line(f"\n{_OTHERS}\n{self._others}")


class GroupedFailures:
    """What the failing items of dumps have in common; the failures of tests stay as they are. kept is the file that
    keeps all results, "" without one."""

    def __init__(self, kept: str = "") -> None:
        self._members: dict[str, GroupMember] = {}
        self._kept = kept
        self._all: list[Any] = []
        self._unlisted: set[str] = set()

    def add(self, item: str, results: Sequence[Result], place: Line) -> None:
        """item: the node id. An item that runs again counts by its last run."""
        self._members.pop(item, None)
        # A result may fail its item by its verdict, or since a baseline has a better one.
        failed = [each for each in results if each.verdict in ("error", "warning") or each.gate is not None]
        # The id of an item of a dump ends with the name of its case. A test may fail for a reason of its own.
        if len(results) == 1 and failed and item.endswith(f"::{failed[0].portable_id.name}"):
            self._members[item] = GroupMember.of(failed[0], place)

    def shorten(self, reporter: pytest.TerminalReporter) -> None:
        """Before the terminal prints failures. From -vv on it prints all as they are."""
        if reporter.verbosity >= VERBOSE:
            return
        groups = Groups()
        reports: dict[GroupKey, list[tuple[GroupMember, Any]]] = {}
        for report in reporter.stats.get("failed", ()):
            member = self._members.get(report.nodeid)
            if member is not None:
                groups.add(member)
                reports.setdefault(member.key, []).append((member, report))
        lists_all = reporter.config.option.reportchars != _DEFAULT
        for key, found in reports.items():
            found.sort(key=lambda pair: pair[0].order)
            self._unlisted |= {report.nodeid for _, report in found[_LISTED:] if not lists_all}
            if len(found) > 1 and reporter.config.option.tbstyle not in ("line", "no"):
                self._join(groups.found[key], found, width_of(reporter))

    def _join(self, group: Group, found: Sequence[tuple[GroupMember, Any]], width: int) -> None:
        (_, first), *others = found
        lines = [f"  {member.line(group.first)}" for member, _ in others[:_LISTED]]
        lines = [line if len(line) <= width else f"{line[: width - 3]}..." for line in lines]
        lines += more_line(len(others) - _LISTED, self._kept)
        first.longrepr = FirstOfGroup(first.longrepr, "\n".join(wrap(group.line, width=width)), "\n".join(lines))
        for _, report in others:
            # pytest's own mark for a failure that the user has seen: its summary passes over it, and counts it.
            report._pdbshown = True

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """When other plugins have read what failed, and before pytest lists it."""
        if self._unlisted:
            self._all = terminalreporter.stats["failed"]
            listed = [report for report in self._all if report.nodeid not in self._unlisted]
            terminalreporter.stats["failed"] = listed

    def restore(self, reporter: pytest.TerminalReporter) -> None:
        """When pytest has listed what failed: say how much it left out, and let it count all."""
        if self._all:
            reporter.stats["failed"] = self._all
            if reporter.reportchars and not reporter.no_summary:
                reporter.write_line("".join(more_line(len(self._unlisted), self._kept)).strip())
