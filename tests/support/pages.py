"""The pages of the documentation, README.md, docs/*.md and docs/zh/*.md: their fenced blocks, headings and links."""

from __future__ import annotations

import re
import runpy
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct, structs

from pytest_probe.cli import main

ROOT = Path(__file__).parent.parent.parent
PAGES = {
    path.relative_to(ROOT).as_posix(): path
    for path in (ROOT / "README.md", *sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("docs/zh/*.md")]))
}

_FENCE = re.compile(
    r"(?P<notes>(?:^<!--[^\n]*-->\n)*)^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_NOTE = re.compile(r"<!-- (?P<name>not run|exit status):? (?P<value>.*) -->")
_FILE = re.compile(r"# (?P<name>[\w.-]+\.\w+)\n")
_COMMENT = re.compile(r"(?:^| +)# (?![\w.-]+\.\w+$).*", re.MULTILINE)
COMMENTED = ("sh", "python", "yaml", "toml")
_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")


class Block(Struct, frozen=True):
    """A fenced block. name is the file that its first line says it is ("# conftest.py"), "" without one; not_run is
    the reason in a comment before it, exit_status what its commands end with; follows: only blank lines lie between it
    and the block before."""

    language: str
    text: str
    name: str
    not_run: str
    exit_status: int
    follows: bool


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in their order."""
    return list(_blocks(PAGES[page].read_text(encoding="utf-8")))


def _blocks(text: str) -> Iterator[Block]:
    end = 0
    for found in _FENCE.finditer(text):
        notes = {note["name"]: note["value"] for note in _NOTE.finditer(found["notes"])}
        named = _FILE.match(found["text"])
        yield Block(
            language=found["language"],
            text=found["text"],
            name=named["name"] if named else "",
            not_run=notes.get("not run", ""),
            exit_status=int(notes.get("exit status", 0)),
            follows=end > 0 and not text[end : found.start()].strip(),
        )
        end = found.end()


def without_comments(page: str) -> list[Block]:
    """The blocks without what their comments say: a translated page has them in its own language."""
    return [
        structs.replace(block, text=_COMMENT.sub("#", block.text)) if block.language in COMMENTED else block
        for block in blocks(page)
    ]


def inline_commands(page: str) -> list[str]:
    """The commands in a page's prose and tables, sorted."""
    prose = _FENCE.sub("", PAGES[page].read_text(encoding="utf-8"))
    found = re.findall(r"`((?:pytest|pytest-probe|make|pip|python)\s[^`]+)`", prose)
    return sorted(" ".join(command.split()) for command in found)


class CommandRow(Struct, frozen=True):
    """A row of a table of commands: what another tool's is called, and the code in the cell of ours."""

    left: str
    spans: tuple[str, ...]

    @property
    def commands(self) -> list[str]:
        """Those that a shell runs."""
        return [span for span in self.spans if span.startswith(("pytest ", "pytest-probe "))]

    @property
    def options(self) -> list[str]:
        """What stands for options of a command."""
        return [span for span in self.spans if span.startswith("-")]


def command_rows(page: str) -> list[CommandRow]:
    """The rows of the tables whose second column is ours."""
    rows: list[CommandRow] = []
    ours = False
    for line in PAGES[page].read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            ours = False
            continue
        left, right = (cell.strip() for cell in line.strip("|").split("|")[:2])
        if ours and not left.startswith("-"):
            rows.append(CommandRow(left, tuple(re.findall(r"`([^`]+)`", right))))
        ours = ours or right == "pytest-probe"
    return rows


def levels(page: str) -> list[int]:
    """The levels of a page's headings, in their order."""
    prose = _FENCE.sub("", PAGES[page].read_text(encoding="utf-8"))
    return [len(marks) for marks in re.findall(r"^(#+) ", prose, re.MULTILINE)]


def anchors(page: Path) -> set[str]:
    """What a link may name behind "#", as GitHub makes it of headings."""
    prose = _FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: str) -> list[str]:
    """The targets of a page's links that lie in this repository."""
    found = [link["target"] for link in _LINK.finditer(_FENCE.sub("", PAGES[page].read_text(encoding="utf-8")))]
    return [target for target in found if "://" not in target]


def run_command(words: list[str], status: int, pytester: pytest.Pytester, capfd: pytest.CaptureFixture[str]) -> str:
    """What a command prints. All but the shell's own run in this process: importing torch takes seconds."""
    program, *args = words
    if program == "pytest":
        result = pytester.runpytest_inprocess(*args)
        assert result.ret == status, words
        return result.stdout.str() + result.stderr.str()
    if program == "python":
        runpy.run_path(str(pytester.path / args[0]), run_name="__main__")
        return capfd.readouterr().out
    if program == "pytest-probe":
        assert main(args) == status, words
        return "".join(capfd.readouterr())
    done = subprocess.run(words, cwd=pytester.path, capture_output=True, text=True, timeout=60)
    assert done.returncode == status, words
    return done.stdout
