"""Runs the checks of a dump without pytest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_probe.check import Case, CaseRuns, Checker, RunRequest
from pytest_probe.model.verdict import Verdict
from pytest_probe.records import read_dump
from pytest_probe.registry import Registry


def verdicts(path: Path, *, dtype: str | None = None, **request: Any) -> dict[str, Verdict]:
    """The verdict on every case of a dump, by its id, on the CPU."""
    runs = CaseRuns(Checker(RunRequest(**{"device": "cpu", **request}), Registry.default()))
    dump = read_dump(path)
    found: dict[str, Verdict] = {}
    for record in dump.records:
        for direction in record.directions:
            case = Case(dump, record, direction, dtype)
            found[case.id] = runs.run(case).verdict
    return found
