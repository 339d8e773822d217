"""A run's summary in Markdown, for the page of a CI job, and GitHub's annotations."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from pytest_probe.reports.tally import Tally
from pytest_probe.reports.terminal import count, summary_lines
from pytest_probe.system.text import printable, printable_line

# Failing cases that it shows.
_SHOWN = 50
# GitHub shows ten errors of a step.
_MAX_FAILING = 10


class Failing(Struct, frozen=True):
    """An item that failed: its id, why in one line, and the line of the program that made the call, from 1; 0 where
    only a file is known."""

    id: str
    reason: str
    file: str
    line: int

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


def page(
    header: Sequence[str],
    tally: Tally,
    failing: Sequence[Failing],
    not_run: int,
    gate: Sequence[str] = (),
    bold: Sequence[str] = (),
) -> Iterator[str]:
    """The lines of the page. gate are those of the gate, the counts first; bold is what nobody may overlook."""
    summary = list(summary_lines(tally, not_run=not_run, width=1000))
    failed = f"{count(len(failing), 'case')} failed" if failing else "nothing failed"
    yield f"## pytest-probe: {failed}"
    yield ""
    first = (line.removeprefix("probe: ") for line in header[:1])
    yield from (f"- {_text(line)}" for line in (*tally.groups.lines(), summary[0], *gate[:2], *first))
    if not_run:
        yield f"- **{count(not_run, 'item')} did not run**"
    yield from (f"- **{_text(line)}**" for line in bold if line)
    if failing:
        yield from ("", "| failed | why | where |", "|---|---|---|")
    for each in failing[:_SHOWN]:
        yield f"| {_code(each.id)} | {_text(each.reason)} | {_code(each.place)} |"
    if len(failing) > _SHOWN:
        yield f"\nand {len(failing) - _SHOWN:,} more"
    for title, lines in (("More of the gate", gate[2:]), ("The whole summary", summary[1:])):
        if lines:
            yield from ("", f"<details><summary>{title}</summary>", "", "~~~text")
            yield from (line.replace("~~~", "~ ~ ~") for line in lines)
            yield from ("~~~", "", "</details>")
    yield ""


def _text(text: str) -> str:
    """The text in one line, with all marks of Markdown and tables escaped."""
    return re.sub(r"([\\`*_{}\[\]<>|#~])", r"\\\1", printable_line(text))


def _code(text: str) -> str:
    """The text as code for a cell of a table."""
    return f"`{printable_line(text).replace('`', chr(39)).replace('|', chr(92) + '|')}`"


def on_github() -> bool:
    """Does the run happen there?"""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def step_summary() -> Path | None:
    """The file that becomes the page of the step."""
    name = os.environ.get("GITHUB_STEP_SUMMARY", "")
    return Path(name) if name and on_github() else None


def error_commands(failing: Sequence[Failing]) -> Iterator[str]:
    """The commands that mark the lines, ten at most."""
    workspace = os.environ.get("GITHUB_WORKSPACE", "")
    for each in failing[:_MAX_FAILING]:
        line = f",line={each.line}" if each.line else ""
        # GitHub knows files by their path in the checkout.
        path = Path(os.path.abspath(each.file))
        inside = workspace and path.is_relative_to(workspace)
        place = f"file={_property(path.relative_to(workspace).as_posix() if inside else each.file)}{line}"
        yield f"::error {place},title={_property(each.id)}::{_data(each.reason)}"


def _data(text: str) -> str:
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
