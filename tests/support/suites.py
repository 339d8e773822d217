"""Test files of a user's that one run of pytest runs, and what it says of each: a run of its own for each would take
seconds that say nothing more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any
from xml.etree import ElementTree

import pytest
from msgspec import Struct

from tests.support.other_plugins import Ran
from tests.support.running import ran

_OUTCOMES = {"failure": "failed", "error": "errors", "skipped": "skipped"}


class Told(Struct, frozen=True):
    """What a run says of a file: how its tests ended, why, and the results of its checks."""

    outcomes: Mapping[str, int]
    text: str
    rows: tuple[dict[str, Any], ...]

    def shows(self, *patterns: str) -> None:
        """These lines are there, in this order."""
        pytest.LineMatcher(self.text.splitlines()).fnmatch_lines(patterns)

    def shows_not(self, pattern: str) -> None:
        pytest.LineMatcher(self.text.splitlines()).no_fnmatch_line(pattern)


class Suite(Struct, frozen=True):
    """The run of all files."""

    run: Ran

    def of(self, name: str) -> Told:
        file = f"test_{name}"
        cases = [
            case
            for case in ElementTree.parse(self.run.folder / "junit.xml").iter("testcase")
            if file in (case.get("classname"), case.get("name"))
        ]
        ends = [[child for child in case if child.tag in _OUTCOMES] for case in cases]
        said = [f"{child.get('message')}\n{child.text}" for case in ends for child in case]
        outcomes = Counter(_OUTCOMES[case[0].tag] if case else "passed" for case in ends)
        rows = tuple(row for row in self.run.rows if row["id"].startswith(f"{file}.py::"))
        return Told(dict(outcomes), "\n".join(said), rows)


def suite(folder: Path, head: str, texts: Mapping[str, str], *args: str, conftest: str = "") -> Suite:
    """Runs a file for each text, below the same head."""
    (folder / "conftest.py").write_text(dedent(conftest), encoding="utf-8")
    for name, text in texts.items():
        (folder / f"test_{name}.py").write_text(dedent(head) + "\n" + dedent(text), encoding="utf-8")
    return Suite(ran(folder, "-p", "no:cacheprovider", "--probe-out=out", "--junitxml=junit.xml", *args))
