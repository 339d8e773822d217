"""How far a run is: one line on a terminal, a plain line each minute in a log."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

import pytest

from pytest_probe.plugin import progress
from pytest_probe.plugin.progress import time_left
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
    assert LINE.findall(shown)[-1] == (str(len(NAMES)), str(len(NAMES)), "2")
    assert "[100%]" not in shown
    assert re.search(r"2 failed.*3 passed|2 failed", shown)


@pytest.mark.parametrize("arg", ["-v", "test_own.py"])
def test_pytests_own_letters_and_words_stay(pytester: pytest.Pytester, make_dump: DumpMaker, arg: str) -> None:
    make_dump()
    pytester.makepyfile(test_own="def test_it(): pass")
    shown = on_a_terminal(*RUN, arg)
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


def test_no_line_before_a_minute_has_passed(healthy_run: Ran) -> None:
    assert not any(LINE.match(line) for line in healthy_run.result.outlines)


@pytest.mark.parametrize(
    ("passed", "share", "expected"),
    [
        (2.0, 0.5, ""),
        (10.0, 0.0, ""),
        (30.0, 0.5, "30 s"),
        (100.0, 0.1, "15 min"),
        (3600.0, 0.2, "4 h 00 min"),
        (3600.0, 0.37, "1 h 42 min"),
        (10.0, 1.5, "0 s"),
    ],
)
def test_the_time_left_follows_from_the_share_of_the_cost(passed: float, share: float, expected: str) -> None:
    assert time_left(passed, share) == expected
