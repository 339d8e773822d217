"""Errors that are alike form a group: every report of a run shows its groups.

`group_of` alone says what is alike. Nothing depends on the order in which cases end, nor on the process that ran them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeAlias

from msgspec import Struct, field

from pytest_probe.model.result import Result
from pytest_probe.model.verdict import Outcome
from pytest_probe.system.text import printable_line

# What all cases of a group share: verdict, API, and words without their numbers.
GroupKey: TypeAlias = tuple[Outcome, str, str]
# The dump, forward before backward, the place in the calls, and the name.
_Order: TypeAlias = tuple[str, int, int, str]

# A line of a program as pytest has it, with its file: counted from 0, None where only a dump is known.
Line: TypeAlias = tuple[str, int | None]
NO_LINE: Line = ("", None)
# Groups that a report begins with.
MAX_GROUPS = 20
_LIMIT = " (limit"
# A number, but none that is part of a name, as in float16.
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d.,]*(?:e[-+]?\d+)?")
_FOLDERS = re.compile(r"[/\\]")
# Of a reason.
_LETTERS = 300


def group_of(result: Result) -> GroupKey:
    """The group of a case: those of one API with one cause; where no cause was found, those of one direction that fail
    the same test."""
    cause = cause_of(result)
    words = cause or f"{result.direction} {_reason(result).partition(_LIMIT)[0]}"
    return result.verdict, result.api, _NUMBER.sub("#", words)


def cause_of(result: Result) -> str:
    """The likely cause, of the first failing output that has one; "" where none was found."""
    causes = (output.diagnosis.cause for output in result.decisive if output.diagnosis is not None)
    return next(filter(None, causes), "")


def place_of(result: Result) -> str:
    """The line of the program that made the call, as "models.py:13"; "" where nobody knows."""
    stack = () if result.details is None else result.details.stack
    return place_words(stack[0].file, stack[0].line) if stack else ""


def place_words(file: str, line: int) -> str:
    """A line, counted from 1, of a file without its folders."""
    return f"{_FOLDERS.split(file)[-1]}:{line}"


class GroupMember(Struct, frozen=True):
    """One case of a group: where it stands in the order of calls, and what a line says of it. message is the cause;
    why is the reason without it."""

    key: GroupKey
    order: _Order
    record: str
    place: str
    message: str
    why: str

    @classmethod
    def of(cls, result: Result, place: Line = NO_LINE) -> GroupMember:
        """place: the line of the program, where the result does not tell it."""
        file, line = place
        line_of = place_of(result) or ("" if line is None else place_words(file, line + 1))
        where = ", ".join(filter(None, (result.module, line_of)))
        id, at = result.portable_id, result.place
        backward = result.direction == "backward"
        order = (id.label, 2, 0, id.name) if at is None else (id.label, int(backward), -at if backward else at, id.name)
        why, cause = _reason(result)[:_LETTERS], cause_of(result)
        like = "" if cause.startswith("as ") else "like "
        words = f"looks {like}{cause}" if cause else why
        # "linear.0.forward": a line has the API as well.
        record = id.name.removeprefix(f"{result.api.rpartition('.')[0]}.")
        return cls(group_of(result), order, record, where, words, why)

    @property
    def label(self) -> str:
        """The dump's."""
        return self.order[0]

    def line(self, first: GroupMember) -> str:
        """What is said of it below the first of its group."""
        record = self.record if self.label == first.label else f"{self.label}::{self.record}"
        return "  ".join(filter(None, (record, self.place, self.why)))


class Group(Struct):
    """Cases that are alike; first is the first of them in the order of calls."""

    first: GroupMember
    count: int = 0
    of_several_dumps: bool = False

    @property
    def line(self) -> str:
        """ "5 errors: looks like ..., Functional.linear, first at models.py:13 (record linear.0.forward)"."""
        verdict, api, _ = self.first.key
        plural, first = ("s", "first ") if self.count != 1 else ("", "")
        # Where a run has several dumps of one name, labels have folders ("rank1/dump.json").
        named = self.of_several_dumps or "/" in self.first.label
        record = f"record {self.first.record}{f' of {self.first.label}' if named else ''}"
        where = f"{first}at {self.first.place} ({record})" if self.first.place else f"{first}in {record}"
        return f"{self.count:,} {verdict}{plural}: {', '.join(filter(None, (self.first.message, api, where)))}"


class Groups(Struct):
    """The groups of a run's errors and warnings, or of other cases."""

    found: dict[GroupKey, Group] = field(default_factory=dict)

    def add(self, member: GroupMember) -> None:
        group = self.found.setdefault(member.key, Group(member))
        group.count += 1
        group.of_several_dumps |= member.label != group.first.label
        if member.order < group.first.order:
            group.first = member

    def of(self, *verdicts: Outcome) -> list[Group]:
        """Groups with these verdicts, the largest first, those of a size in the order of calls."""
        found = (group for key, group in self.found.items() if key[0] in verdicts)
        return sorted(found, key=lambda group: (-group.count, group.first.order))

    def lines(self, verdict: Outcome = "error") -> Iterator[str]:
        """A line a group, of twenty groups at most, and one that counts the others."""
        found = self.of(verdict)
        yield from (group.line for group in found[:MAX_GROUPS])
        more = found[MAX_GROUPS:]
        if more:
            cases = sum(group.count for group in more)
            words = f"{cases:,} {verdict}{'s' if cases != 1 else ''} in {len(more):,} other group"
            yield f"{words}{'s' if len(more) != 1 else ''}"


def _reason(result: Result) -> str:
    """Why, in one line, without the cause. Of a case that is no error, but worse than in the baseline, that."""
    if result.verdict != "error" and result.gate is not None and result.gate.reason:
        return printable_line(result.gate.reason)
    failed = result.decisive
    if result.kind or not failed:
        lines = (result.reason or result.kind or result.verdict).splitlines()
    else:
        # Without what else its diagnosis says.
        found, reason = failed[0].diagnosis, failed[0].reason
        if found is not None and found.cause:
            reason = reason.removesuffix(found.cause).removesuffix("; ")
        lines = (reason.partition("; wrong: ")[0] or failed[0].verdict).splitlines()
    return printable_line(lines[0]) if lines else result.verdict
