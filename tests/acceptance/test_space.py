"""`--probe-dump PATH`, with a space, is `--probe-dump=PATH`, wherever PATH leads."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.acceptance.conftest import DumpMaker, entries

NAME = "Torch.argmax.0.forward"
ONE = {NAME: entries()[NAME]}
TELLING = """
def pytest_collection_finish(session):
    for line in (session.config.rootpath, session.config.inipath, *(item.nodeid for item in session.items)):
        print("told:", line)
"""


@pytest.fixture
def project(pytester: pytest.Pytester, make_dump: DumpMaker) -> Path:
    """project/ is where pytest starts, below is a folder with an ini file of its own; elsewhere/ lies beside."""
    for folder in ("project", "project/below", "elsewhere"):
        make_dump(f"{folder}/dump.json", ONE)
    (pytester.path / "project/below/pytest.ini").write_text("[pytest]\naddopts = --collect-only")
    (pytester.path / "project/test_mine.py").write_text("def test_mine(): pass\n")
    (pytester.path / "project/conftest.py").write_text(TELLING)
    os.chdir(pytester.path / "project")
    return pytester.path / "project"


def configured(project: Path) -> None:
    (project / "pyproject.toml").write_text("[tool.pytest.ini_options]\nprobe_seed = '7'\n")


def run(pytester: pytest.Pytester, *args: str) -> list[str]:
    """rootdir, the ini file, and the node ids."""
    result = pytester.runpytest_subprocess("--collect-only", *args)
    assert result.ret == 0, result.stderr.str()
    return [line.removeprefix("told: ") for line in result.outlines if line.startswith("told: ")]


PLACES = ["dump.json", "below/dump.json", "../elsewhere/dump.json", "../elsewhere"]


@pytest.mark.parametrize("rootdir", ["configured", "bare"])
@pytest.mark.parametrize("place", PLACES)
def test_a_space_is_an_equals_sign(pytester: pytest.Pytester, project: Path, place: str, rootdir: str) -> None:
    if rootdir == "configured":
        configured(project)
    root, ini, *names = run(pytester, "--probe-dump", place)
    assert (root, ini) == (str(project), str(project / "pyproject.toml") if rootdir == "configured" else "None")
    inside = not place.startswith("..")
    assert names == [f"{place if inside else project.parent / 'elsewhere/dump.json'}::{NAME}"]


def test_with_workers(pytester: pytest.Pytester, project: Path) -> None:
    configured(project)
    result = pytester.runpytest_subprocess("--probe-dump", "../elsewhere/dump.json", "-n1", "-v")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"rootdir: {project}", "configfile: pyproject.toml"])


def test_beside_tests_and_other_options(pytester: pytest.Pytester, project: Path) -> None:
    configured(project)
    dump, rules = project.parent / "elsewhere/dump.json", project.parent / "elsewhere/rules.json"
    rules.write_text('{"black_list": ["linear"]}')
    root, _, *names = run(
        pytester, "--probe-standards-file", str(rules), "test_mine.py", "--probe-dump", "../elsewhere/dump.json"
    )
    assert root == str(project)
    assert names == ["test_mine.py::test_mine", f"{dump}::{NAME}"]


def test_in_the_environment(pytester: pytest.Pytester, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(project)
    monkeypatch.setenv("PYTEST_ADDOPTS", "--probe-dump ../elsewhere/dump.json")
    assert run(pytester)[0] == str(project)


def test_a_failing_run_keeps_its_status_and_output(pytester: pytest.Pytester, project: Path) -> None:
    configured(project)
    (project.parent / "elsewhere/dump.json").write_text("{")
    result = pytester.runpytest_subprocess("--probe-dump", "../elsewhere/dump.json", "-s")
    assert result.ret == 1
    assert sum("test session starts" in line for line in result.outlines) == 1


@pytest.mark.parametrize("as_script", [False, True])
def test_a_call_of_pytest_main_is_told_to_write_it(pytester: pytest.Pytester, project: Path, as_script: bool) -> None:
    """Also a script that hands its own arguments on: what it did before is not done twice."""
    configured(project)
    script = project / "script.py"
    script.write_text("import pytest, sys\nprint('begun')\nsys.exit(pytest.main(sys.argv[1:]))")
    args = ["--probe-dump", "../elsewhere/dump.json"]
    result = pytester.run(sys.executable, script, *args) if as_script else pytester.runpytest(*args)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --probe-dump ../elsewhere/dump.json: with a space pytest *; write --probe-dump=../elsewhere/dump.json"]
    )
    assert result.outlines.count("begun") == as_script
