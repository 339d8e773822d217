"""A feature is a row of one table: without the rows there is none of it, and a new row is a new feature."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

import pytest_probe
from pytest_probe.options import COMMANDS, FEATURES, OPTIONS
from tests.support.writing import entries, write_dump

ROOM = Path(pytest_probe.__file__).parent / "features"
# The options of a run without features.
CORE = """
dump device dtype inputs data-dir seed api skip-api direction standard standards-file allow repeat flops mode emulate
reference-device strict out save capture collect namespaces
""".split()
WITHOUT = """
import sys
sys.modules["pytest_probe.features"] = None
from pytest_probe import options
options.FEATURES.clear()
options.COMMANDS = options.COMMANDS[:1]
for option in options.OPTIONS:
    option.check = "" if "features" in option.check else option.check
    if option.name not in {core}:
        delattr(options.Options, option.attribute)
options.OPTIONS = tuple(option for option in options.OPTIONS if option.name in {core})
options.NAMED = {{option.name: option for option in options.OPTIONS}}
options.SECTIONS = {{
    title: " ".join(name for name in names.split() if name in options.NAMED)
    for title, names in options.SECTIONS.items()
}}
"""
COMMAND = "from pytest_probe.cli import main; raise SystemExit(main())"
LOUD = """
import msgspec, pytest
from pytest_probe.plugin.feature import Feature, Summary

class Loud(Feature):
    def prepare(self):
        self.cases = 0

    def judge(self, judged):
        judged.verdict = msgspec.structs.replace(judged.verdict, verdict="warning", reason="it is loud")

    def add(self, result):
        self.cases += 1

    def summary(self, width):
        return Summary([f"loud: {self.cases}"], behind=["behind it"])

    def pytest_report_header(self):
        return "loud is here"
"""


@pytest.fixture
def dump(pytester: pytest.Pytester) -> Path:
    x = torch.randn(5, generator=torch.Generator().manual_seed(0))
    return write_dump(pytester.path, entries("Torch.exp.0", torch.exp, x, backward=True))


def test_the_table_names_each_folder_and_file() -> None:
    classes = [*FEATURES, *(option.standalone for option in OPTIONS if option.standalone)]
    files = {path.stem for path in ROOM.glob("*.py")} - {"__init__"}
    assert {path.split(".")[2] for path in classes} == {path.parent.name for path in ROOM.glob("*/plugin.py")} | files
    named = [path.split(".")[2] for path in COMMANDS if path.startswith("pytest_probe.features.")]
    commands = {path.parent.name for path in ROOM.glob("*/cli.py")}
    assert commands < set(named) <= commands | files


@pytest.mark.slow
def test_a_run_needs_no_feature(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, dump: Path) -> None:
    """With neither their folder nor their rows, in any process."""
    assert {option.name for option in OPTIONS} > set(CORE)
    pytester.makepyfile(sitecustomize=WITHOUT.format(core=CORE))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(pytester.path), os.environ.get("PYTHONPATH", "")]))
    result = pytester.runpytest_subprocess("-n1", f"--probe-dump={dump}", "--probe-out=out")
    result.stdout.fnmatch_lines(["*2 cases, 2 pass*", "*2 passed*"])
    assert pytester.run(sys.executable, "-c", COMMAND, "show", dump).ret == 0
    assert len((pytester.path / "out" / "results.jsonl").read_text().splitlines()) == 2


@pytest.mark.usefixtures("forked")
def test_a_new_row_is_a_new_feature(pytester: pytest.Pytester, dump: Path) -> None:
    pytester.makepyfile(loud=LOUD)
    pytester.makeconftest(
        "from pytest_probe.options import FEATURES\nFEATURES['loud.Loud'] = lambda asked: asked.strict"
    )
    pytester.makeini("[pytest]\npythonpath = .")
    result = pytester.runpytest_subprocess("-n1", "-v", f"--probe-dump={dump}", "--probe-strict")
    result.stdout.fnmatch_lines(["loud is here", "*it is loud*", "loud: 2", "behind it", "*2 failed*"])
