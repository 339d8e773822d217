"""What is misspelled is answered with what was meant: options, keys, commands, standards, modes, dtypes, APIs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_probe.capture import kernel
from pytest_probe.cli import main
from tests.acceptance.conftest import DumpMaker
from tests.support.running import collected, refusal


def command(*args: str) -> subprocess.CompletedProcess[str]:
    script = Path(sys.executable).with_name("pytest-probe")
    return subprocess.run([script, *args], capture_output=True, text=True, timeout=120)


def test_both_commands_print_the_version() -> None:
    told = command("--version")
    assert (told.returncode, told.stdout) == (0, f"pytest-probe 0.1.0\n{kernel.kernel_line()}\n")
    listed = subprocess.run(
        [sys.executable, "-m", "pytest", "--version", "--version"], capture_output=True, text=True, timeout=120
    )
    assert "  pytest-probe-0.1.0 at " in listed.stdout + listed.stderr


def test_an_option_and_a_key_of_the_projects_own_stay(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    pytester.makeconftest(
        """
        def pytest_addoption(parser):
            parser.addoption("--probe-devices")
            parser.addini("probe_devices", "help")
        """
    )
    pytester.makeini("[pytest]\nprobe_devices = 3\n")
    assert collected(pytester, "--probe-dump=dump.json", "--probe-devices=2")


def test_a_misspelt_ini_key_is_suggested(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    pytester.makeini("[pytest]\nprobe_wqwqwq = cpu\n")
    assert collected(pytester, "--probe-dump=dump.json")
    pytester.makeini("[pytest]\nprobe_devcie = cpu\n")
    said = refusal(pytester, "--probe-dump=dump.json")
    said.fnmatch_lines(["probe_devcie in tox.ini: there is no such key; did you mean probe_device[?]"])


def test_a_misspelt_api_is_suggested(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    rule = "{bfloat16: {standard: ulp, over_ratio: 0.01, justification: why}}"
    # bilinear is an API, and so no misspelling of linear.
    (pytester.path / "rules.yaml").write_text(f"apis:\n  Functional.lineer: {rule}\n  Functional.bilinear: {rule}\n")
    wrong = ["--probe-api=Functional.lineer", "--probe-skip-api=argmaxx", "-m", "probe(api='Functional.realu')"]
    result = pytester.runpytest("--probe-dump=dump.json", "--collect-only", "--probe-standards-file=rules.yaml", *wrong)
    result.stdout.fnmatch_lines_random(
        [
            "probe: --probe-api: Functional.lineer matches no record; did you mean *.linear[?]",
            "probe: --probe-skip-api: argmaxx matches no record; did you mean Torch.argmax[?]",
            "probe: -m: Functional.realu matches no record; did you mean *.relu[?]",
            "probe: *rules.yaml: Functional.lineer matches no record; *.linear[?]",
        ]
    )
    assert result.stdout.str().count("matches no record") == 4


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            ["sho"],
            "COMMAND: 'sho' cannot be used; give one of show, doctor, compare, capture, time, baseline, merge, report, "
            "history (did you mean show?)",
        ),
        (["compare", "a", "b", "-o", "c", "--standrd=msprobe"], "'--standrd=msprobe' cannot be used; "),
        (["compare", "a", "b", "-o", "c", "--standrd=msprobe"], "(did you mean --standard?)"),
        (["show", "dump.json", "--driection=both"], "(did you mean --direction?)"),
        (["show", "dump.json", "--dtype=flaot16"], "(did you mean float16?)"),
    ],
)
def test_a_misspelt_command_is_suggested(args: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 2
    assert words in capsys.readouterr().err


def test_a_misspelt_api_of_show_is_suggested(make_dump: DumpMaker, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(make_dump()), "--api=Functional.realu", "--skip-api=linear"]) == 0
    assert capsys.readouterr().err == "Functional.realu matches no record; did you mean Functional.relu?\n"
