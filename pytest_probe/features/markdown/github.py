"""What GitHub Actions reads of a run: commands in its output that mark lines of files, and the page of a step."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_probe.features.markdown.page import Failing
from pytest_probe.system.text import printable

# GitHub shows ten errors of a step.
MOST = 10


def is_here() -> bool:
    """Does the run happen there?"""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def page() -> Path | None:
    """The file that becomes the page of the step."""
    name = os.environ.get("GITHUB_STEP_SUMMARY", "")
    return Path(name) if name and is_here() else None


def error_commands(failing: Sequence[Failing]) -> Iterator[str]:
    """The commands that mark the lines, ten at most."""
    for each in failing[:MOST]:
        line = f",line={each.line}" if each.line else ""
        place = f"file={_property(_in_workspace(each.file))}{line}"
        yield f"::error {place},title={_property(each.id)}::{_data(each.reason)}"


def _in_workspace(file: str) -> str:
    """GitHub knows files by their path in the checkout."""
    workspace = os.environ.get("GITHUB_WORKSPACE", "")
    path = Path(os.path.abspath(file))
    return path.relative_to(workspace).as_posix() if workspace and path.is_relative_to(workspace) else file


def _data(text: str) -> str:
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
