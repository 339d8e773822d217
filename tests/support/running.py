"""Runs of pytest that several tests look at, and refusals, for which nothing has to run."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest

from tests.support import forks
from tests.support.other_plugins import WITHOUT_OTHERS, Ran


def ran(folder: Path, *args: str) -> Ran:
    """pytest in a folder, in a process of its own: for a fixture of a module or of the session."""
    environment = {**os.environ, "PYTEST_ADDOPTS": WITHOUT_OTHERS, "PYTHONDONTWRITEBYTECODE": "1"}
    process = forks.run(["-m", "pytest", *args], folder, environment)
    return Ran(
        pytest.RunResult(process.returncode, process.stdout.splitlines(), process.stderr.splitlines(), 0), folder
    )


def reports(folder: Path, head: str, bodies: Sequence[str], *args: str, fixture: str = "") -> list[str]:
    """What one run says of the failure of a test with each body."""
    tests = (f"\ndef test_{number}({fixture}):\n{indent(body, '    ')}\n" for number, body in enumerate(bodies))
    (folder / "test_mine.py").write_text(dedent(head) + "".join(tests), encoding="utf-8")
    result = ran(folder, *args).result
    result.assert_outcomes(failed=len(bodies))
    return re.split(r"^_+ test_\d+ _+$", result.stdout.str(), flags=re.MULTILINE)[1:]


def rows(folder: str | Path = "out") -> list[dict[str, Any]]:
    """Lines of results.jsonl."""
    return [json.loads(line) for line in Path(folder, "results.jsonl").read_text().splitlines()]


def by_case(folder: str | Path = "out") -> dict[str, dict[str, Any]]:
    """They by what their ids have behind the dump."""
    return {row["id"].partition("::")[2]: row for row in rows(folder)}


def timeless(folder: str | Path = "out") -> dict[str, dict[str, Any]]:
    """The same without times."""
    return {name: {**row, "duration": 0, "parts": {}} for name, row in by_case(folder).items()}


def refusal(pytester: pytest.Pytester, *args: str) -> pytest.LineMatcher:
    """What pytest says before it collects anything; it then ends with status 4, as for each UsageError. xdist's -n is
    not heard here."""
    with pytest.raises(pytest.UsageError) as raised:
        pytester.parseconfigure(*args)
    return pytest.LineMatcher(str(raised.value).splitlines())


def collected(pytester: pytest.Pytester, *args: str) -> list[str]:
    """The ids that pytest collects, for which no run is needed."""
    config = pytester.parseconfigure(*args)
    session = pytest.Session.from_config(config)
    session.exitstatus = pytest.ExitCode.OK
    config.hook.pytest_sessionstart(session=session)
    try:
        return [item.nodeid for item in session.perform_collect()]
    finally:
        config.hook.pytest_sessionfinish(session=session, exitstatus=pytest.ExitCode.OK)
