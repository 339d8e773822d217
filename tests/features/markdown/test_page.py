"""Commands that GitHub Actions reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_probe.features.markdown import Failing, error_commands, page, step_summary
from pytest_probe.reports.tally import Tally


def test_commands_escape_what_would_end_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", "/work/repo")
    failing = Failing("a::b,c", "100 % wrong:\nall", "/work/repo/src/a,b.py", 3)
    assert list(error_commands([failing])) == [
        "::error file=src/a%2Cb.py,line=3,title=a%3A%3Ab%2Cc::100 %25 wrong:%0Aall"
    ]
    elsewhere = Failing("a", "b", "/other/x.py", 0)
    assert list(error_commands([elsewhere] * 12)) == ["::error file=/other/x.py,title=a::b"] * 10


def test_the_summary_of_a_github_step_is_found_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "page.md")
    assert step_summary() is None
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert step_summary() == Path("page.md")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "")
    assert step_summary() is None


def test_markdown_shows_names_as_they_are() -> None:
    tally = Tally()
    tally.verdicts["error"] = 60
    failing = [Failing("d.json::a|b`c", "limit *2* | <b>", "train.py", 7)] * 60
    text = "\n".join(page(["probe: cpu"], tally, failing, 0, bold=["a_b cannot be written"]))
    assert text.startswith(
        "## pytest-probe: 60 cases failed\n\n- 60 cases, 60 error\n- cpu\n- **a\\_b cannot be written**\n"
    )
    assert "| `d.json::a\\|b'c` | limit \\*2\\* \\| \\<b\\> | `train.py:7` |" in text
    assert text.endswith("\nand 10 more\n")
