"""What a package index shows of the project, and what `make lint` says of its prose."""

from __future__ import annotations

import re
import runpy

import pytest

from tests.support.pages import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_long_description_has_no_link_into_the_repository_and_installs_from_the_index() -> None:
    shown = runpy.run_path(str(ROOT / "kernel" / "readme.py"))["long_description"](README)
    assert not re.findall(r"\]\((?!https?:)", shown)
    assert "pip install 'pytest-probe[torch,parallel]'" in shown
    assert "clone" not in shown
    assert "<!--" not in shown
    assert "| understand a failure, step by step; disagree with a verdict | A failing item |" in shown


@pytest.mark.parametrize(
    "text",
    ["It lies beside it.", "All those that\ndiffer", "There is none.", "What is no case", "It hangs on the size."],
)
def test_a_pattern_that_plain_english_does_not_have_is_found(text: str) -> None:
    assert len(list(runpy.run_path(str(ROOT / "docs" / "prose.py"))["found"](text))) == 1


@pytest.mark.parametrize("text", ["`beside` is a key", "```\nbeside\n```", "none of them", "next to it"])
def test_code_and_plain_english_are_not(text: str) -> None:
    assert not list(runpy.run_path(str(ROOT / "docs" / "prose.py"))["found"](text))
