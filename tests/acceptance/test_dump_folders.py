"""A dump is data: pytest imports, collects and configures nothing because of what lies in its folder."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

import pytest

from tests.acceptance.conftest import DumpMaker, entries
from tests.support.running import collected, refusal

NAME = "Torch.argmax.0.forward"
ONE = {NAME: entries()[NAME]}
# As a run without plugins of entry points gets it; xdist is there for -n1.
ALONE = ("-p", "pytest_probe.plugin")
WORKER = ("-p", "xdist", "-n1")
FAILING = """
from msgspec.structs import replace

def pytest_probe_verdict(case, verdict):
    return replace(verdict, verdict="error", reason="planted")
"""
PLACES = ("run", "run/step0", "run/step0/rank0")


def speaks(pytester: pytest.Pytester, file: str) -> str:
    """Code that leaves its name in a file when it is imported."""
    return f"open({str(pytester.path / 'imported.txt')!r}, 'a').write({file!r} + '\\n')\n"


@pytest.fixture
def folder(pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch) -> Path:
    """project/ is where pytest starts; project/run and the folders below it hold code beside their dumps."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for place in PLACES:
        for name in ("conftest.py", "__init__.py", "test_it.py"):
            file = pytester.path / "project" / place / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(speaks(pytester, f"{place}/{name}") + "def test_it(): pass\n")
    make_dump("project/run/dump.json", ONE)
    make_dump("project/run/step0/rank0/dump.json", ONE)
    os.chdir(pytester.path / "project")
    return pytester.path / "project/run"


def imported(pytester: pytest.Pytester) -> list[str]:
    file = pytester.path / "imported.txt"
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.parametrize(
    ("args", "passed"),
    [
        (["--probe-dump=run"], 2),
        (["--probe-dump=run/step0/rank0/dump.json"], 1),
        ([f"run/dump.json::{NAME}"], 1),
        ([f"run/step0/rank0/dump.json::{NAME}", f"run/dump.json::{NAME}"], 2),
        (["run/dump.json", "--probe-dump=run/step0"], 2),
    ],
)
def test_nothing_in_the_folder_is_imported(
    pytester: pytest.Pytester, folder: Path, args: list[str], passed: int
) -> None:
    assert len(collected(pytester, *ALONE, *args)) == passed
    assert imported(pytester) == []


@pytest.mark.parametrize("args", [["--probe-dump=test_run"], [f"test_run/dump.json::{NAME}"]])
def test_nothing_in_the_folder_is_imported_where_pytest_looks_for_tests(
    pytester: pytest.Pytester, folder: Path, args: list[str]
) -> None:
    folder.rename(folder.with_name("test_run"))
    assert collected(pytester, *ALONE, *args)
    assert imported(pytester) == []


INIS = {
    "pytest.ini": "[pytest]\naddopts = --collect-only",
    "tox.ini": "[pytest]\naddopts = --collect-only",
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--collect-only'",
}


@pytest.mark.parametrize("name", INIS)
def test_settings_in_the_folder_count_nowhere(pytester: pytest.Pytester, folder: Path, name: str) -> None:
    (folder / name).write_text(INIS[name])
    assert not pytester.parseconfigure(*ALONE, "--probe-dump=run/dump.json").option.collectonly
    for args, message in (
        (["run/dump.json"], f"{folder / name}: it lies in the folder of a dump, which is data *"),
        (["--probe-dump", "run/dump.json"], "--probe-dump run/dump.json: with a space *"),
    ):
        refusal(pytester, *ALONE, *args).fnmatch_lines([f"{message}"])
        assert imported(pytester) == []


def test_settings_above_the_folder_count(pytester: pytest.Pytester, folder: Path) -> None:
    (folder.parent / "pytest.ini").write_text("[pytest]\naddopts = --collect-only")
    os.chdir(pytester.path)
    config = pytester.parseconfigure(*ALONE, f"project/run/dump.json::{NAME}")
    assert (config.rootpath, config.option.collectonly) == (folder.parent, True)
    assert imported(pytester) == []


def test_the_command_of_a_failure_does_without_them(pytester: pytest.Pytester, folder: Path) -> None:
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --collect-only")
    (folder.parent / "conftest.py").write_text(FAILING)
    result = pytester.runpytest(*ALONE, "--probe-dump=run/dump.json")
    result.assert_outcomes(failed=1)
    (command,) = (line for line in result.outlines if line.startswith("to reproduce: "))
    assert command == f"to reproduce: pytest --probe-dump={shlex.quote(f'{folder}/dump.json')} --probe-api={NAME}"


def test_nothing_beside_a_dump_outside_the_project_is_imported(
    pytester: pytest.Pytester, folder: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "elsewhere"
    shutil.copytree(folder, outside / "run")
    (outside / "conftest.py").write_text(speaks(pytester, "outside/conftest.py"))
    for target in ("--probe-dump={}", f"{{}}::{NAME}"):
        assert len(collected(pytester, *ALONE, target.format(outside / "run/step0/rank0/dump.json"))) == 1
        assert imported(pytester) == []


def test_the_conftests_of_the_project_serve_dumps(pytester: pytest.Pytester, folder: Path) -> None:
    """Where dumps are collected, and in a worker that runs one by its id."""
    (folder.parent / "cases").mkdir()
    folder.rename(folder.parent / "cases/run")
    shutil.rmtree(folder.parent / "cases/run/step0")
    hooks = "def pytest_{}(item): " + speaks(pytester, "{} {}")
    for place in ("", "cases/"):
        text = "".join(hooks.format(hook, place or "project", hook) for hook in ("itemcollected", "runtest_setup"))
        (folder.parent / f"{place}conftest.py").write_text(text)
    assert collected(pytester, *ALONE, "--probe-dump=cases/run")
    assert sorted(imported(pytester)) == ["cases/ itemcollected", "project itemcollected"]
    pytester.runpytest(*ALONE, *WORKER, f"cases/run/dump.json::{NAME}").assert_outcomes(passed=1)
    assert {"cases/ runtest_setup", "project runtest_setup"} < set(imported(pytester))


def test_last_failed_finds_dumps_in_several_folders(pytester: pytest.Pytester, folder: Path) -> None:
    """Nor does a run import anything, with a space behind the option."""
    (folder.parent / "conftest.py").write_text(FAILING)
    args = (*ALONE, "--probe-dump", "run")
    pytester.runpytest(*args).assert_outcomes(failed=2)
    assert len(collected(pytester, *args, "--lf")) == 2
    assert imported(pytester) == []


def test_what_the_user_names_beside_the_dump_is_imported(pytester: pytest.Pytester, folder: Path) -> None:
    assert len(collected(pytester, *ALONE, "run/test_it.py", "--probe-dump=run/dump.json")) == 2
    assert set(imported(pytester)) == {"run/conftest.py", "run/__init__.py", "run/test_it.py"}


def test_the_folder_in_which_pytest_was_started_is_the_users_own(pytester: pytest.Pytester, folder: Path) -> None:
    os.chdir(folder)
    assert len(collected(pytester, *ALONE, "--probe-dump=dump.json", "--probe-dump=step0")) == 2
    assert set(imported(pytester)) == {"run/conftest.py", "run/__init__.py"}
