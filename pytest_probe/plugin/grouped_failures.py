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
from pytest_probe.reports.groups import GroupKey, GroupMember, Groups, Line
from pytest_probe.reports.terminal import width_of, wrap

_OTHERS = "the others of this group, each in full with -vv:"


class GroupedFailures:
    """What the failing items of dumps have in common; the failures of tests stay as they are."""

    def __init__(self) -> None:
        self._members: dict[str, GroupMember] = {}

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
        if reporter.verbosity >= VERBOSE or reporter.config.option.tbstyle in ("line", "no"):
            return
        groups = Groups()
        reports: dict[GroupKey, list[tuple[GroupMember, Any]]] = {}
        for report in reporter.stats.get("failed", ()):
            member = self._members.get(report.nodeid)
            if member is not None:
                groups.add(member)
                reports.setdefault(member.key, []).append((member, report))
        width = width_of(reporter)
        for key, found in reports.items():
            if len(found) < 2:
                continue
            group = groups.found[key]
            (_, first), *others = sorted(found, key=lambda pair: pair[0].order)
            lines = [f"  {member.line(group.first)}" for member, _ in others]
            lines = [line if len(line) <= width else f"{line[: width - 3]}..." for line in lines]
            first.longrepr = _FirstOfGroup(first.longrepr, "\n".join(wrap(group.line, width=width)), "\n".join(lines))
            for _, report in others:
                # pytest's own mark for a failure that the user has seen: its summary passes over it, and counts it.
                report._pdbshown = True


class _FirstOfGroup:
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
