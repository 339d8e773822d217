"""`pytest-probe time`: a program runs as it is, and its API calls' times are told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_probe import end_analysis, start_analysis
from pytest_probe.cli import main
from tests.support import forks

PROGRAM = """
import os, signal, sys, torch
from pytest_probe import end_analysis, start_analysis
for _ in range(2):
    start_analysis("step")
    x = torch.ones(3, requires_grad=True)
    torch.nn.functional.softmax(x, -1).sum().backward()
    end_analysis()
print(__name__, sys.argv[1:])
{end}
"""
COMMAND = [sys.executable, "-c", "from pytest_probe.cli import main; raise SystemExit(main())", "time"]
ENDS = {
    "status": ("sys.exit(5)", 5, ""),
    # Python itself ends by the signal.
    "Ctrl-C": ("os.kill(os.getpid(), signal.SIGINT); import time; time.sleep(60)", -2, "KeyboardInterrupt"),
}


def timed(folder: Path, *options: str, end: str = "") -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(PROGRAM.format(end=end))
    command = [*COMMAND, *options, "train.py", "--lr", "3"]
    if "kill" not in end:
        return forks.run(command[1:], folder, os.environ)
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("how", ENDS)
def test_however_the_program_ends_its_times_are_told_and_written(how: str, tmp_path: Path) -> None:
    end, status, words = ENDS[how]
    done = timed(tmp_path, "-o", "out", "--backward", end=end)
    assert done.returncode == status, done.stderr
    assert words in done.stderr
    assert "__main__ ['--lr', '3']" in done.stdout
    assert "section step, 2 times" in done.stdout
    rows = [json.loads(line) for line in (tmp_path / "out/time.jsonl").read_text().splitlines()]
    counts = {(row["api"], row["direction"]): row["calls"] for row in rows if row.get("section") == "" and "api" in row}
    assert counts["Functional.softmax", "forward"] == counts["Functional.softmax", "backward"] == 2
    assert counts["Torch.autograd.backward", "forward"] == 2
    events = json.loads((tmp_path / "out/trace.json").read_text())["traceEvents"]
    assert sum(event["name"] == "step" for event in events) == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["nothing.py"], "PROGRAM: 'nothing.py' cannot be used; there is no such file"),
        ([], "PROGRAM: '' cannot be used; give the program to run, with its arguments"),
        (["--framework=jax", "train.py"], "--framework: 'jax' cannot be used; give one of pytorch, paddle"),
        (["-o", "old", "train.py"], "-o: 'old' cannot be used; it holds the times of an earlier run (time.jsonl)"),
        (["-o", "train.py", "train.py"], "-o: 'train.py' cannot be used; it cannot be written"),
        (["--nestd", "train.py"], "--nestd"),
    ],
)
def test_what_cannot_be_used_is_refused_before_the_program_runs(
    options: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("raise SystemExit('it ran')")
    Path("old").mkdir()
    Path("old/time.jsonl").write_text("")
    assert main(["time", *options]) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert printed.out == ""


def test_a_program_that_imports_no_framework_says_so(tmp_path: Path) -> None:
    """Without a folder nothing is written."""
    (tmp_path / "plain.py").write_text("print('done')")
    done = subprocess.run([*COMMAND, "plain.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("done\nall: ")
    assert "nothing was timed: the program imported none of torch, paddle" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plain.py"]


def test_sections_do_nothing_where_nothing_is_timed(caplog: pytest.LogCaptureFixture) -> None:
    start_analysis("step")
    end_analysis()
    end_analysis()
    assert caplog.records == []
