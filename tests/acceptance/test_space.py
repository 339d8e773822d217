"""`--probe-dump PATH`, with a space, is `--probe-dump=PATH`, or an error where pytest takes PATH for a test path."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.acceptance.conftest import DumpMaker, entries
from tests.support.running import collected, refusal

NAME = "Torch.argmax.0.forward"
ONE = {NAME: entries()[NAME]}


@pytest.fixture
def project(pytester: pytest.Pytester, make_dump: DumpMaker) -> Path:
    """project/ is where pytest starts, below is a folder with an ini file of its own; elsewhere/ lies beside."""
    for folder in ("project", "project/below", "elsewhere"):
        make_dump(f"{folder}/dump.json", ONE)
    (pytester.path / "project/below/pytest.ini").write_text("[pytest]\naddopts = --collect-only")
    (pytester.path / "project/test_mine.py").write_text("def test_mine(): pass\n")
    os.chdir(pytester.path / "project")
    return pytester.path / "project"


def configured(project: Path) -> None:
    (project / "pyproject.toml").write_text("[tool.pytest.ini_options]\nprobe_seed = '7'\n")


def run(pytester: pytest.Pytester, *args: str) -> list[str]:
    """rootdir, the ini file, and the node ids."""
    config = pytester.parseconfigure(*args)
    return [str(config.rootpath), str(config.inipath), *collected(pytester, *args)]


CONFIGURED, BARE = "configured", "bare"


def refused(pytester: pytest.Pytester, *args: str, written: str) -> None:
    """The run says to write `=`, and does nothing else."""
    flag, path = written.split("=")
    said = refusal(pytester, *args)
    said.fnmatch_lines([f"{flag} {path}: with a space pytest *; write {written}"])


@pytest.mark.parametrize(
    ("place", "rootdir"), [("dump.json", CONFIGURED), ("dump.json", BARE), ("below", BARE), ("../elsewhere", BARE)]
)
def test_a_space_is_an_equals_sign(pytester: pytest.Pytester, project: Path, place: str, rootdir: str) -> None:
    (project / "below/pytest.ini").unlink()
    if rootdir == CONFIGURED:
        configured(project)
    root, ini, *names = run(pytester, "--rootdir=.", "--probe-dump", place)
    assert (root, ini) == (str(project), str(project / "pyproject.toml") if rootdir == CONFIGURED else "None")
    dump = (project / place).resolve()
    dump = dump / "dump.json" if dump.is_dir() else dump
    assert names == [f"{dump.relative_to(project) if dump.is_relative_to(project) else dump}::{NAME}"]


@pytest.mark.parametrize("rootdir", [CONFIGURED, BARE])
@pytest.mark.parametrize("place", ["below/dump.json", "../elsewhere/dump.json", "../elsewhere"])
def test_a_path_that_would_change_rootdir_is_refused(
    pytester: pytest.Pytester, project: Path, place: str, rootdir: str
) -> None:
    if rootdir == CONFIGURED:
        configured(project)
    refused(pytester, "--probe-dump", place, written=f"--probe-dump={place}")
    root, ini, *names = run(pytester, f"--probe-dump={place}")
    assert (root, ini) == (str(project), str(project / "pyproject.toml") if rootdir == CONFIGURED else "None")
    assert len(names) == 1


@pytest.mark.parametrize("name", ["tox.ini", "setup.cfg"])
def test_a_file_that_configures_other_tools_changes_nothing(
    pytester: pytest.Pytester, project: Path, name: str
) -> None:
    configured(project)
    (project / "below/pytest.ini").unlink()
    (project / "below" / name).write_text("[flake8]\nmax-line-length = 120\n")
    root, _, *names = run(pytester, "--probe-dump", "below/dump.json")
    assert (root, names) == (str(project), [f"below/dump.json::{NAME}"])


def test_a_path_after_a_space_keeps_the_rootdir_with_workers(pytester: pytest.Pytester, project: Path) -> None:
    configured(project)
    result = pytester.runpytest("--probe-dump", "dump.json", "-n1", "-v")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"rootdir: {project}", "configfile: pyproject.toml"])


def test_with_tests_and_other_options(pytester: pytest.Pytester, project: Path) -> None:
    configured(project)
    rules = project.parent / "elsewhere/rules.json"
    rules.write_text('{"black_list": ["linear"]}')
    root, _, *names = run(pytester, "--probe-standards-file", str(rules), "test_mine.py", "--probe-dump", "dump.json")
    assert root == str(project)
    assert names == ["test_mine.py::test_mine", f"dump.json::{NAME}"]


def test_a_path_after_a_space_in_the_environment_is_refused_outside(
    pytester: pytest.Pytester, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(project)
    monkeypatch.setenv("PYTEST_ADDOPTS", "--probe-dump ../elsewhere/dump.json")
    refused(pytester, written="--probe-dump=../elsewhere/dump.json")
    monkeypatch.setenv("PYTEST_ADDOPTS", "--probe-dump dump.json")
    assert run(pytester)[0] == str(project)
