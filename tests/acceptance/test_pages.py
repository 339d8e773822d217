"""What the documentation shows works: each fenced `python` and `sh` block of README.md and docs/ runs here.

The blocks of a page run in their order in one folder, which holds dump.json, gpt/ (the repository's demo), train.py and
my_kernels.py; those of docs/moving.md meet files of other tools as well. A block whose first line is a comment with a
file's name becomes that file; a Python file is run by the commands that follow it, else here. `<!-- not run: REASON
-->` and `<!-- exit status N -->` stand in the line before a block. A `text` block behind commands is what they print:
each of its lines, numbers aside, "..." for what is left out of the text or of a line. The conftests that no command of
their page runs are loaded by one run. Of runs of which the page shows nothing, those of tests with equal options are
one, and those of dumps that leave nothing to what follows are collected alone: their options are tested elsewhere.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

from pytest_probe.frameworks import unavailable
from tests.acceptance.conftest import backward, forward, tensor
from tests.support.pages import (
    PAGES,
    ROOT,
    Block,
    anchors,
    blocks,
    inline_commands,
    levels,
    links,
    run_command,
    without_comments,
)
from tests.support.running import collected
from tests.support.tool_files import add_files_of_tools

TRAIN = """
import torch

model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(3, 4)).square().mean().backward()
optimizer.step()
"""
KERNELS = """
import torch

def my_gelu(x, approximate="none"):
    return torch.nn.functional.gelu(x, approximate=approximate)

def my_softmax(x, dim):
    shifted = torch.exp(x - x.amax(dim, keepdim=True)) if x.dtype is torch.float32 else None
    return torch.softmax(x, dim) if shifted is None else shifted / shifted.sum(dim, keepdim=True)

def rms_norm(x, gamma, epsilon=1e-6):
    scale = torch.rsqrt(torch.mean(x * x, -1, keepdim=True) + epsilon)
    return x * (scale * gamma), scale

def my_rms_norm(x, weight):
    return rms_norm(x, weight)

def my_swiglu(x):
    a, b = x.chunk(2, -1)
    return torch.nn.functional.silu(a) * b

def my_attention(q, k, v):
    scores = q.float() @ k.float().mT
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    return (weights.to(v.dtype).float() @ v.float() / weights.sum(-1, keepdim=True)).to(v.dtype)

class MyLayerNorm(torch.nn.LayerNorm):
    pass
"""
SOURCES = ("pytest_probe", "docs", "benchmarks", "kernel", "tests/acceptance", "tests/support", "tests/evidence")
WRITING = ("--probe-out", "--probe-history", "--probe-html", "--probe-baseline")
TANH, LAST = {"type": "str", "value": "tanh"}, {"type": "int", "value": -1}
X, Y, WEIGHT = tensor(8, 16), tensor(8, 4), tensor(4, 16)
ENTRIES = {
    "Functional.linear.0.forward": forward(X, WEIGHT, output=Y),
    "Functional.gelu.0.forward": forward(X, output=X) | {"input_kwargs": {"approximate": TANH}},
    "Functional.softmax.0.forward": forward(X, output=X) | {"input_kwargs": {"dim": LAST}},
    "Mine.rms_norm.0.forward": {**forward(X, tensor(16), output=X), "output": [X, tensor(8, 1)]},
    "Functional.softmax.0.backward": backward(X, X),
    "Functional.gelu.0.backward": backward(X, X),
    "Functional.linear.0.backward": backward(Y, X, WEIGHT),
}


@pytest.fixture
def folder(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a page's reader is. What a script of theirs sets is undone."""
    dump = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None, "data": ENTRIES}
    (pytester.path / "dump.json").write_text(json.dumps(dump), encoding="utf-8")
    (pytester.path / "train.py").write_text(TRAIN, encoding="utf-8")
    (pytester.path / "my_kernels.py").write_text(KERNELS, encoding="utf-8")
    shutil.copytree(ROOT / "cases" / "gpt", pytester.path / "gpt")
    pytester.syspathinsert()
    for name in ("PYTHONHASHSEED", "CUBLAS_WORKSPACE_CONFIG"):
        monkeypatch.setenv(name, "0")
    # torch's own helpers of tests, which another test may have imported here, forbid programs to set its flags.
    frozen = torch.backends.ContextProp.__set__.__globals__
    monkeypatch.setitem(frozen, "__allow_nonbracketed_mutation_flag", True)
    # Of what the examples write to; tests/acceptance/test_results_hook.py looks at what they write.
    for name in ("torch.utils.tensorboard", "wandb"):
        monkeypatch.setitem(sys.modules, name, MagicMock())
    return pytester.path


def _page_cases() -> Iterator[Any]:
    """The pages with blocks that run; those in Chinese have the same blocks, as a test below says."""
    for page in PAGES:
        if page.startswith("docs/zh/"):
            continue
        texts = [block.text for block in blocks(page) if block.language in ("python", "sh")]
        if texts:
            marks = [pytest.mark.paddle] if any("import paddle" in text for text in texts) else []
            yield pytest.param(page, marks=marks)


@pytest.mark.parametrize("page", list(_page_cases()))
@pytest.mark.usefixtures("folder")
def test_the_code_blocks_of_a_page_run_and_print_what_it_shows(
    page: str, pytester: pytest.Pytester, capfd: pytest.CaptureFixture[str]
) -> None:
    found = blocks(page)
    if page.endswith("/moving.md"):
        add_files_of_tools(pytester.path)
    left_out = []
    tests: dict[tuple[str, ...], list[str]] = {}
    for place, (block, following) in enumerate(zip(found, [*found[1:], None], strict=True)):
        if block.not_run:
            continue
        if "import paddle" in block.text and unavailable("paddle"):
            left_out.append(block.name)
            continue
        if block.name:
            (pytester.path / block.name).write_text(block.text, encoding="utf-8")
        commands = _commands(block, following)
        shown = following.text if following is not None and following.language == "text" and following.follows else ""
        of_code = place > 0 and found[place - 1].language == "python" and block.follows
        rest = [each.text for each in found[place + 1 :] if each.language in ("sh", "python")]
        output = ""
        for number, command in enumerate(commands, start=1):
            later = " ".join([*chain(*commands[number:]), *rest])
            if not (shown or block.exit_status) and _is_of_tests(command):
                tests.setdefault(tuple(command[2:]), []).append(command[1])
            elif shown or of_code or block.exit_status or _leaves_something(command, later):
                output += run_command(command, block.exit_status, pytester, capfd)
            else:
                assert collected(pytester, *command[1:])
        if shown:
            _assert_shown(shown, output)
    for options, files in tests.items():
        run_command(["pytest", *files, *options], 0, pytester, capfd)
    if left_out:
        pytest.skip(f"all blocks but {', '.join(left_out)} ran: these need Paddle (make demo-paddle)")


@pytest.mark.usefixtures("folder")
def test_the_conftests_that_no_command_of_a_page_runs_are_loaded_by_one_run(
    pytester: pytest.Pytester, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["pytest", "--probe-dump=dump.json"]
    for page in (page for page in PAGES if not page.startswith("docs/zh/")):
        for block, following in pairwise([*blocks(page), None]):
            if block and block.name == "conftest.py" and not block.not_run and not _is_run(following):
                example = f"example_{len(command)}"
                (pytester.path / f"{example}.py").write_text(block.text, encoding="utf-8")
                command.append(f"-p{example}")
    run_command(command, 0, pytester, capfd)


def _commands(block: Block, following: Block | None) -> list[list[str]]:
    """What runs this block, each command in words."""
    if block.language == "sh":
        lines = block.text.replace("\\\n", " ").splitlines()
        return [words for words in (shlex.split(line, comments=True) for line in lines) if words]
    if block.language != "python":
        return []
    assert block.name, f"a comment in the first line must name the file:\n{block.text}"
    if _is_run(following) or block.name == "conftest.py":
        return []
    return [["pytest" if block.name.startswith("test_") else "python", block.name]]


def _is_run(following: Block | None) -> bool:
    """Is the block behind a file one of commands that run it?"""
    return following is not None and following.language == "sh" and not following.not_run


def _leaves_something(command: list[str], later: str) -> bool:
    """Is it no run of a dump, or does what follows name a file of its?"""
    options = (arg.partition("=") for arg in command)
    written = [value for option, _, value in options if option in WRITING]
    return command[0] != "pytest" or any(name in later for name in written)


def _is_of_tests(command: list[str]) -> bool:
    return command[0] == "pytest" and command[1].endswith(".py")


def _assert_shown(shown: str, output: str) -> None:
    printed = _words(output)
    for line in shown.splitlines():
        parts = [line] if _words(line) in printed else line.split("...")
        assert all(_words(part) in printed for part in parts), f"the page shows {line!r}, printed was:\n{output}"


def _words(text: str) -> str:
    """The text without what differs between machines and terminals: numbers, rules, line breaks."""
    return " ".join(re.sub(r"[-+]?\d[\d.,e+-]*|[=_]{2,}|\+cpu", " ", text).split())


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = PAGES[page].parent / path if path else PAGES[page]
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_a_page_that_code_names_is_there() -> None:
    sources = [ROOT / "Makefile", *(path for part in SOURCES for path in sorted((ROOT / part).rglob("*")))]
    named = {
        (path.relative_to(ROOT).as_posix(), page)
        for path in sources
        if path.suffix in ("", ".py", ".yaml", ".c", ".h") and path.is_file()
        for page in re.findall(r"\bdocs/[\w/-]+\.(?:md|csv|py|json)\b", path.read_text(encoding="utf-8"))
    }
    assert named
    assert not {(path, page) for path, page in named if not (ROOT / page).exists()}


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/zh/")])
def test_a_page_in_chinese_has_the_commands_and_headings_of_the_english_one(page: str) -> None:
    name = page.removeprefix("docs/zh/")
    english = name if name in PAGES else f"docs/{name}"
    assert without_comments(page) == without_comments(english)
    assert inline_commands(page) == inline_commands(english)
    assert levels(page) == levels(english)
    assert PAGES[page] in {(PAGES[english].parent / link).resolve() for link in links(english)}
    assert PAGES[english] in {(PAGES[page].parent / link).resolve() for link in links(page)}


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/zh/")])
def test_a_link_of_a_chinese_page_says_where_it_leads_to_english(page: str) -> None:
    text = PAGES[page].read_text(encoding="utf-8")
    english = re.findall(r"\[([^\]]*)\]\(\.\./[^)]*\.md[^)]*\)", text)
    assert [words for words in english if "英文" not in words] == ["English"]


def test_the_page_of_options_is_what_its_script_writes() -> None:
    spec = importlib.util.spec_from_file_location("options_page", ROOT / "docs" / "options.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs" / "options.md").read_text(encoding="utf-8") == module.text()
