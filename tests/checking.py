"""Runs the checks of a dump without pytest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_probe.execution import Case, Checker, Conditions
from pytest_probe.records import read_dump
from pytest_probe.registry import Registry
from pytest_probe.standards.verdict import Verdict


def verdicts(path: Path, *, dtype: str | None = None, **conditions: Any) -> dict[str, Verdict]:
    """The verdict on every case of a dump, by its id, on the CPU."""
    checker = Checker(Conditions(**{"device": "cpu", **conditions}), Registry.default())
    dump = read_dump(path)
    found = {}
    for record in dump.records:
        for direction in record.directions:
            case = Case(dump, record, direction, dtype)
            found[case.id] = checker.check(case)
        checker.release()
    return found
