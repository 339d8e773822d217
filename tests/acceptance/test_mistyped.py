"""What was mistyped, or cannot be written: said before anything runs, with what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_probe.cli import main
from tests.acceptance.conftest import DumpMaker
from tests.support.running import refusal

CRASHES = """
    import ctypes

    def pytest_probe_register(registry):
        registry.calls["Functional.relu"] = lambda x: ctypes.string_at(0)
"""


@pytest.mark.parametrize("quiet", [[], ["-q"]])
def test_an_api_that_no_record_has_is_named_with_the_nearest(
    quiet: list[str], pytester: pytest.Pytester, make_dump: DumpMaker
) -> None:
    make_dump()
    result = pytester.runpytest("--probe-dump=dump.json", "--probe-api=*rolu*", *quiet)
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(
        "probe: --probe-api: '[*]rolu[*]' matches none of * records; the nearest names: *Functional.relu*"
    )


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--probe-skip-api=*"], "skip-api"),
        (["--probe-api=*relu*", "--probe-skip-api=*relu*"], "api and --probe-skip-api"),
    ],
)
def test_options_that_leave_nothing_are_named(
    options: list[str], named: str, pytester: pytest.Pytester, make_dump: DumpMaker
) -> None:
    make_dump()
    result = pytester.runpytest("--probe-dump=dump.json", *options)
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(f"probe: --probe-{named}: of * records nothing is left to run")


@pytest.mark.parametrize(
    ("key", "value"), [("probe_device", "cuba"), ("probe_repeat", "0"), ("probe_history", "folder")]
)
def test_a_wrong_value_of_an_ini_file_is_blamed_on_the_file(
    key: str, value: str, pytester: pytest.Pytester, make_dump: DumpMaker
) -> None:
    make_dump()
    pytester.mkdir("folder")
    pytester.makeini(f"[pytest]\n{key} = {value}")
    refusal(pytester, "--probe-dump=dump.json").fnmatch_lines([f"{key} in tox.ini: '*{value}' cannot be used; *"])


@pytest.mark.parametrize("out", ["afile", "afile/inside"])
def test_a_file_in_the_place_of_a_captures_folder_is_refused_before_the_program_runs(
    out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("afile").touch()
    Path("train.py").write_text("raise SystemExit('it ran')")
    assert main(["capture", "-o", out, "train.py"]) == 2
    said = capsys.readouterr()
    assert f"-o: '{out}' cannot be used; give a folder that can be written: " in said.err
    assert "it ran" not in said.err


def test_a_search_runs_where_its_examples_cannot_be_kept(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    (pytester.path / ".pytest_cache").touch()
    result = pytester.runpytest("--probe-dump=dump.json", "--probe-api=*relu", "--probe-fuzz=3", "-W", "ignore")
    result.assert_outcomes(passed=1)


@pytest.mark.usefixtures("forked")
def test_a_crash_without_workers_names_its_item(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    pytester.makeconftest(CRASHES)
    result = pytester.runpytest_subprocess("--probe-dump=dump.json", "--probe-api=relu", "--probe-direction=forward")
    assert result.ret < 0
    assert any(
        line.endswith("in dump.json::Functional.relu.0.forward")
        for line in result.errlines
        if "pytest-probe item" in line
    )


def test_workers_in_another_folder_find_a_dump_of_the_controllers(
    pytester: pytest.Pytester, make_dump: DumpMaker, tmp_path: Path
) -> None:
    make_dump()
    away = tmp_path / "away"
    away.mkdir()
    folders = ("-d", f"--tx=popen//chdir={away}")
    result = pytester.runpytest("--probe-dump=dump.json", "--probe-api=relu", *folders)
    assert result.ret == pytest.ExitCode.OK, result.stdout.str() + result.stderr.str()
