"""What was mistyped is answered with what was meant, and what is named is named as people know it."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_probe.capture import kernel
from tests.acceptance.conftest import DumpMaker, Probed
from tests.support.running import collected, refusal


def test_the_command_prints_the_version() -> None:
    script = Path(sys.executable).with_name("pytest-probe")
    told = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=600, check=True)
    assert told.stdout + told.stderr == f"pytest-probe 0.1.0\n{kernel.kernel_line()}\n"


def test_a_module_is_the_same_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["pytest-probe", "--version"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(str(Path(kernel.__file__).parents[1] / "__main__.py"), run_name="__main__")
    assert capsys.readouterr().out == f"pytest-probe 0.1.0\n{kernel.kernel_line()}\n"


def test_an_option_and_a_key_of_the_projects_own_stay(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    pytester.makeconftest(
        """
        def pytest_addoption(parser):
            parser.addoption("--probe-devices")
            parser.addini("probe_devices", "help")
        """
    )
    pytester.makeini("[pytest]\nprobe_devices = 3\nprobe_wqwqwq = cpu\n")
    assert collected(pytester, "--probe-dump=dump.json", "--probe-devices=2")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("probe_devcie = cpu", "probe_devcie in tox.ini: there is no such key; did you mean probe_device[?]"),
        *(
            (line, f"{line.split()[0]} in tox.ini: '*{line.split()[2]}' cannot be used; *")
            for line in ("probe_device = cuba", "probe_repeat = 0", "probe_history = folder")
        ),
    ],
)
def test_a_wrong_line_of_an_ini_file_is_blamed_on_the_file(
    line: str, message: str, pytester: pytest.Pytester, make_dump: DumpMaker
) -> None:
    make_dump()
    pytester.mkdir("folder")
    pytester.makeini(f"[pytest]\n{line}\n")
    refusal(pytester, "--probe-dump=dump.json").fnmatch_lines([message])


def test_names_that_match_no_record_are_suggested(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    """Without the header, too."""
    rule = "{bfloat16: {standard: ulp, over_ratio: 0.01, justification: why}}"
    # bilinear is an API, and so no misspelling of linear.
    (pytester.path / "rules.yaml").write_text(f"apis:\n  Functional.lineer: {rule}\n  Functional.bilinear: {rule}\n")
    pytester.makeconftest("def pytest_probe_register(registry): registry.references['Functional.linaer'] = abs")
    make_dump()
    wrong = ["--probe-api=Functional.rleu", "--probe-skip-api=argmaxx", "-m", "probe(api='Functional.realu')"]
    args = ("--probe-dump=dump.json", *wrong, "--probe-standards-file=rules.yaml")
    config = pytester.parseconfigure(*args)
    header = config.hook.pytest_report_header(config=config, start_path=Path())
    quiet = pytester.runpytest(*args, "-q")
    assert quiet.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    for lines in ([line for each in header for line in each], quiet.outlines):
        pytest.LineMatcher(lines).fnmatch_lines_random(
            [
                "probe: --probe-api: Functional.rleu matches no record; did you mean Functional.relu[?]",
                "probe: --probe-skip-api: argmaxx matches no record; did you mean Torch.argmax[?]",
                "probe: -m: Functional.realu matches no record; did you mean *.relu[?]",
                "probe: *rules.yaml: Functional.lineer matches no record; *.linear[?]",
                "probe: registry.references: Functional.linaer matches no record; did you mean Functional.linear[?]",
            ]
        )
        assert sum("matches no record" in line for line in lines) == 5
    said = "probe: --probe-api: 'Functional.rleu' matches none of * records; the nearest names: *Functional.relu*"
    quiet.stdout.fnmatch_lines(said)


def test_options_that_leave_nothing_are_named(probed: Probed) -> None:
    result = probed("--probe-api=*relu*", "--probe-skip-api=*relu*").result
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines("probe: --probe-api and --probe-skip-api: of * records nothing is left to run")


@pytest.mark.usefixtures("forked")
def test_a_crash_without_workers_names_its_item(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    pytester.makeconftest("""
        import ctypes

        def pytest_probe_register(registry):
            registry.calls["Functional.relu"] = lambda x: ctypes.string_at(0)
    """)
    result = pytester.runpytest_subprocess("--probe-dump=dump.json", "--probe-api=relu", "--probe-direction=forward")
    assert result.ret < 0
    lines = [line for line in result.errlines if "pytest-probe item" in line]
    assert any(line.endswith("in dump.json::Functional.relu.0.forward") for line in lines)


def test_workers_in_another_folder_find_a_dump_of_the_controllers(probed: Probed, tmp_path: Path) -> None:
    (tmp_path / "away").mkdir()
    result = probed("--probe-api=relu", "-d", f"--tx=popen//chdir={tmp_path / 'away'}").result
    assert result.ret == pytest.ExitCode.OK, result.stdout.str() + result.stderr.str()
