"""Runs of a small dump beside other pytest plugins, and what they leave.

Some of these plugins act wherever they are installed: the tests run pytest without them, but for those that name them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from msgspec import Struct

# By the names of their entry points.
OTHERS = (
    "allure_pytest html html_fixtures metadata pytest_cov pytest_reportlog randomly repeat rerunfailures timeout"
).split()
WITHOUT_OTHERS = " ".join(f"-p no:{name}" for name in OTHERS)


class Junit(Struct, frozen=True):
    """A test case of junit: what it is beside its properties ("failure", "skipped", ...), and those."""

    kinds: tuple[str, ...]
    properties: Mapping[str, str]


class Ran(Struct, frozen=True):
    """A run of pytest in a folder, with --probe-out=out and --junitxml=junit.xml."""

    result: pytest.RunResult
    folder: Path

    @property
    def summary(self) -> Mapping[str, int]:
        """Outcomes of pytest's last line. How plugins are loaded here is what pytest itself warns of."""
        return {outcome: count for outcome, count in self.result.parseoutcomes().items() if outcome != "warnings"}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Lines of results.jsonl."""
        return [json.loads(line) for line in (self.folder / "out/results.jsonl").read_text().splitlines()]

    @property
    def verdicts(self) -> Mapping[str, str]:
        """Verdicts of results.jsonl by entry; no entry stands there twice."""
        names = [row["id"].partition("::")[2] for row in self.rows]
        assert len(set(names)) == len(names)
        return {name: row["verdict"] for name, row in zip(names, self.rows, strict=True)}

    @property
    def run(self) -> dict[str, Any]:
        """What run.json says."""
        found: dict[str, Any] = json.loads((self.folder / "out/run.json").read_text())
        return found

    @property
    def junit(self) -> list[Junit]:
        return junit_of(self.folder / "junit.xml")

    @property
    def junit_verdicts(self) -> Mapping[str, str]:
        """Verdicts of junit's properties by entry; no entry has properties twice."""
        found = [case.properties for case in self.junit if "probe.id" in case.properties]
        names = [properties["probe.id"].partition("::")[2] for properties in found]
        assert len(set(names)) == len(names)
        return {name: properties["probe.verdict"] for name, properties in zip(names, found, strict=True)}


def junit_of(file: Path) -> list[Junit]:
    return [_junit(case) for case in ElementTree.parse(file).iter("testcase")]


def _junit(case: ElementTree.Element) -> Junit:
    properties = {each.get("name", ""): each.get("value", "") for each in case.iter("property")}
    return Junit(tuple(child.tag for child in case if child.tag != "properties"), properties)


def run_beside(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, plugins: Iterable[str], *args: str, workers: int = 0
) -> Ran:
    """Run pytest in a process of its own, with these plugins alone."""
    monkeypatch.delenv("PYTEST_ADDOPTS")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    loaded = [word for name in ("probe", "xdist", *plugins) for word in ("-p", name)]
    distributed = [f"-n{workers}"] if workers else []
    files = ["--probe-dump=dump.json", "--probe-out=out", "--junitxml=junit.xml"]
    result = pytester.runpytest_subprocess(*loaded, *files, *distributed, *args)
    return Ran(result, pytester.path)
