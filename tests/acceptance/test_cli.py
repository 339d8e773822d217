"""The commands: what `pytest-probe show` lists, and what none of them takes."""

from __future__ import annotations

import subprocess
import sys
from unittest.mock import MagicMock

import pytest

from pytest_probe.cli import main
from tests.acceptance.conftest import NAMES, DumpMaker, entries


def test_show_lists_records_with_dtype_and_elements(make_dump: DumpMaker, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(make_dump())]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "dump.json: 4 records (pytorch, statistics, L1); no items: 1 Module entry"
    assert [line.split()[0] for line in lines[1:7]] == NAMES
    assert lines[3].split() == ["Functional.linear.0.forward", "float32", "26"]
    assert lines[6].split()[1:5] == ["skip:", "outside", "the", "allow-list:"]
    assert "5 cases would run, 1 would be skipped" in lines
    assert [line.split() for line in lines if line.startswith("Functional.linear")] == [
        ["Functional.linear", "2", "52"]
    ]
    assert ["float32", "5", "84"] in [line.split() for line in lines]
    assert ["up", "to", "1,000", "elements", "5", "84"] in [line.split() for line in lines]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--api=linear"], NAMES[2:4]),
        (["--probe-api=torch.*", "--direction=forward"], NAMES[4:]),
        (["--skip-api=Functional.*"], NAMES[4:]),
        (["--api=Functional.realu", "--skip-api=linear"], []),
        (["--dtype=bfloat16", "--api=relu"], [f"{name}[bfloat16]" for name in NAMES[:2]]),
    ],
)
def test_show_lists_the_selected_records_only(
    make_dump: DumpMaker, capsys: pytest.CaptureFixture[str], args: list[str], expected: list[str]
) -> None:
    assert main(["show", *args, str(make_dump())]) == 0
    printed = capsys.readouterr()
    assert [line.split()[0] for line in printed.out.splitlines() if line.startswith("  ") and "." in line] == expected
    misspelt = "Functional.realu matches no record; did you mean Functional.relu?\n"
    assert printed.err == (misspelt if "--api=Functional.realu" in args else "")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["show", "no.json"], "no.json: there is no such file or folder"),
        (["show", "--direction=up", "."], "--direction: 'up' cannot be used; give one of both, forward, backward"),
        (["show", "empty.json"], "empty.json"),
        (["show", "dump.json", "--driection=both"], "(did you mean --direction?)"),
        (["show", "dump.json", "--dtype=flaot16"], "(did you mean float16?)"),
        (
            ["sho"],
            "COMMAND: 'sho' cannot be used; give one of show, doctor, compare, capture, time, baseline, merge, report, "
            "history (did you mean show?)",
        ),
        (["compare", "a", "b", "-o", "c", "--standrd=msprobe"], "'--standrd=msprobe' cannot be used; "),
        (["compare", "a", "b", "-o", "c", "--standrd=msprobe"], "(did you mean --standard?)"),
    ],
)
def test_errors_exit_with_2(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str], args: list[str], message: str
) -> None:
    (pytester.path / "empty.json").touch()
    assert main(args) == 2
    assert message in capsys.readouterr().err


def test_a_reader_that_leaves_is_no_error(make_dump: DumpMaker) -> None:
    code = "import sys, pytest_probe.cli as cli; sys.exit(cli.main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "show", str(make_dump())]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate()
    assert (process.returncode, errors) == (0, b"")


def test_help_of_show_says_that_nothing_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["show", "--help"])
    assert "Nothing is run, and no conftest.py is read" in " ".join(capsys.readouterr().out.split())


def test_show_begins_with_what_computes(make_dump: DumpMaker, capsys: pytest.CaptureFixture[str]) -> None:
    relu, linear = (entries()[f"Functional.{api}.0.forward"] for api in ("relu", "linear"))
    data = {"Torch.clone": relu, "Tensor.zero_": relu, "Functional.relu": relu, "Functional.linear": linear}
    assert main(["show", str(make_dump(data={f"{api}.0.forward": each for api, each in data.items()}))]) == 0
    shown = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line]
    assert [name.rpartition(".0.")[0] for name in shown if name.endswith(".forward")] == [
        "Functional.relu", "Functional.linear", "Torch.clone", "Tensor.zero_",
    ]  # fmt: skip


def test_a_shell_that_asks_gets_the_commands_and_nobody_else_needs_argcomplete(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    argcomplete = MagicMock()
    argcomplete.autocomplete.side_effect = SystemExit(0)
    monkeypatch.setitem(sys.modules, "argcomplete", argcomplete)
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    with pytest.raises(SystemExit):
        main([])
    (parser,) = argcomplete.autocomplete.call_args.args
    assert "capture" in parser.format_help()
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    monkeypatch.delenv("_ARGCOMPLETE")
    with pytest.raises(SystemExit):
        main(["--version"])
    assert "pytest-probe" in capsys.readouterr().out
