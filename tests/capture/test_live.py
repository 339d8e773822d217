from __future__ import annotations

import io
import sys
import time

import pytest

from pytest_probe.capture import program


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_one_line_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr(program, "_SECOND", 0.01)
    with program.displayed(lambda: "12 calls of 1 step, 3 MB; 0 s"):
        time.sleep(0.3)
    text = terminal.getvalue()
    assert "pytest-probe: 12 calls of 1 step, 3 MB; 0 s\r" in text
    assert "\n" not in text
    assert text.endswith("\x1b[K")


def test_a_log_has_none_in_the_first_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", log := io.StringIO())
    with program.displayed(lambda: "12 calls"):
        time.sleep(0.05)
    assert log.getvalue() == ""
