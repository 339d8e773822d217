"""The shell completes commands where argcomplete is installed, and nothing imports it otherwise."""

from __future__ import annotations

import sys
from unittest.mock import MagicMock

import pytest

from pytest_probe.cli import main


def test_a_shell_that_asks_gets_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    argcomplete = MagicMock()
    argcomplete.autocomplete.side_effect = SystemExit(0)
    monkeypatch.setitem(sys.modules, "argcomplete", argcomplete)
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    with pytest.raises(SystemExit):
        main([])
    (parser,) = argcomplete.autocomplete.call_args.args
    assert "capture" in parser.format_help()


def test_nobody_else_needs_argcomplete(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    monkeypatch.delenv("_ARGCOMPLETE", raising=False)
    with pytest.raises(SystemExit):
        main(["--version"])
    assert "pytest-probe" in capsys.readouterr().out
