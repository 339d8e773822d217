"""How far a run is: one line on a terminal, a plain line each minute in a log."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

import pytest

from pytest_probe.plugin import progress
from tests.acceptance.conftest import NAMES, PLANTED, DumpMaker
from tests.support import forks
from tests.support.other_plugins import Ran

pytestmark = pytest.mark.skipif(not forks.POSSIBLE, reason="terminals and forks of Linux")
RUN = ("--probe-dump=dump.json", "--probe-device=cpu")
LINE = re.compile(r"probe: (\d+) of (\d+), (\d+) errors?(?:, \d+ (?:s|min) left)?")


def on_a_terminal(*args: str) -> str:
    """What a run writes to a terminal."""
    terminal, its = os.openpty()
    process = forks.Fork(["-m", "pytest", *args], Path.cwd(), os.environ, (its, its, its))
    os.close(its)
    written = b""
    with contextlib.suppress(OSError):  # when nobody has it open any more
        while block := os.read(terminal, 4096):
            written += block
    os.close(terminal)
    process.wait()
    return written.decode()


@pytest.mark.parametrize("workers", [[], ["-n1"]], ids=["serial", "n1"])
def test_a_terminal_shows_one_progress_line(
    pytester: pytest.Pytester, make_dump: DumpMaker, workers: list[str]
) -> None:
    make_dump()
    pytester.makeconftest(PLANTED)
    shown = on_a_terminal(*RUN, *workers)
    counted = LINE.findall(shown)
    assert counted[-1] == (str(len(NAMES)), str(len(NAMES)), "2")
    assert "[100%]" not in shown
    assert re.search(r"2 failed.*3 passed|2 failed", shown)


@pytest.mark.parametrize("args", [["-v"], ["-q"], ["test_own.py"]])
def test_pytests_own_letters_and_words_stay(pytester: pytest.Pytester, make_dump: DumpMaker, args: list[str]) -> None:
    make_dump()
    pytester.makepyfile(test_own="def test_it(): pass")
    shown = on_a_terminal(*RUN, *args)
    assert not LINE.search(shown)
    assert "[100%]" in shown


@pytest.mark.parametrize("args", [["-v"], ["-n1"]])
def test_a_plain_line_in_a_log(
    pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch, args: list[str]
) -> None:
    make_dump()
    monkeypatch.setattr(progress, "LOGGED", 0.0)
    run = pytester.runpytest(*RUN, *args)
    lines = [match[1] for line in run.outlines if (match := LINE.fullmatch(line))]
    assert lines == [str(number) for number in range(1, len(NAMES) + 1)]
    assert run.ret == pytest.ExitCode.OK


@pytest.mark.parametrize("args", [["-q"], ["-p", "no:xdist"], ["-p", "no:terminal"]])
def test_no_line_before_a_minute_has_passed(
    pytester: pytest.Pytester, make_dump: DumpMaker, healthy_run: Ran, args: list[str]
) -> None:
    assert not any(LINE.match(line) for line in healthy_run.result.outlines)
    make_dump()
    run = pytester.runpytest(*RUN, *args)
    assert run.ret == pytest.ExitCode.OK
    assert not any(LINE.match(line) for line in run.outlines)
