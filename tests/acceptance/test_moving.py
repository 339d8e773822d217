"""What docs/moving.md says in tables, where no block of the page runs it."""

from __future__ import annotations

import gzip
import re
from types import SimpleNamespace

import pytest
import torch

from pytest_probe.options import OPTIONS
from tests.support.pages import PAGES, ROOT, blocks


@pytest.mark.parametrize("page", ["docs/moving.md", "docs/zh/moving.md"])
def test_each_option_that_the_page_names_exists(page: str) -> None:
    named = set(re.findall(r"--probe-[a-z-]*[a-z]", PAGES[page].read_text(encoding="utf-8")))
    assert len(named) > 20
    assert not named - {option.flag for option in OPTIONS}


def test_the_compile_mode_of_the_npu_surrounds_each_call(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """-j, on a dump of msprobe's: the compiler that docs/hooks.md shows, and a stand-in for torch_npu's switch."""
    asked: list[bool] = []
    switch = SimpleNamespace(set_compile_mode=lambda *, jit_compile: asked.append(jit_compile))
    monkeypatch.setattr(torch, "npu", switch, raising=False)
    (conftest,) = [block.text for block in blocks("docs/hooks.md") if '"npu-jit"' in block.text]
    pytester.makeconftest(conftest)
    dump = gzip.decompress((ROOT / "tests/data/msprobe-26.2.0/gpt/dump.json.gz").read_bytes())
    (pytester.path / "dump.json").write_bytes(dump)
    result = pytester.runpytest_inprocess(
        "--probe-dump=dump.json", "--probe-device=cpu", "--probe-compile=npu-jit", "--probe-api=Functional.gelu"
    )
    assert not result.ret
    assert result.parseoutcomes()["passed"]
    assert asked == [True, False] * (len(asked) // 2)
    assert asked
