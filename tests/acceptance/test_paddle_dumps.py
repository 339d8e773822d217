"""Dumps of Paddle's tools, as far as Paddle itself is not needed: listed, collected, and said what to install."""

from __future__ import annotations

import importlib.util
import runpy
import shutil
from pathlib import Path

import pytest

from pytest_probe.cli import main
from tests.support.paddle_dumps import LINES, entry, tensor, unpack_real, write
from tests.support.running import collected, rows

GOOD = 'paddle.add(Tensor([2, 3],"float32"), 1.0, )\n'


# Run in every process, also where Paddle is installed.
CONFTEST = """
import importlib.util

found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "paddle" else found(name, package)
"""
INSTALL = "its calls need paddle, which is not installed: pip install 'pytest-probe[paddle]'"


@pytest.fixture(autouse=True)
def without_paddle(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where Paddle is not installed; what the conftest changes in this process is undone."""
    monkeypatch.setattr(importlib.util, "find_spec", importlib.util.find_spec)
    pytester.makeconftest(CONFTEST)


def test_one_item_says_what_to_install_or_that_the_dump_is_cut_or_none(pytester: pytest.Pytester) -> None:
    dumps = [unpack_real(pytester.path), Path(shutil.copy(LINES, pytester.path / "lines.txt"))]
    cut, none = write(pytester.path / "cut", {"paddle.add*0": entry(tensor())}), pytester.path / "none.txt"
    cut.write_text(cut.read_text()[:60])
    none.write_text("paddle.add(Tensor([2,\n")
    result = pytester.runpytest(*(f"--probe-dump={dump}" for dump in (*dumps, cut, none)), "--probe-out=out", "-n1")
    result.assert_outcomes(failed=4)
    found = [(line["id"].rpartition("::")[2], line["reason"]) for line in rows()]
    assert {reason for item, reason in found if item == "(framework)"} == {f"{dump}: {INSTALL}" for dump in dumps}
    damaged = sorted(reason for item, reason in found if item != "(framework)")
    assert damaged[0].startswith(f"{cut}: is damaged or cut off at byte 6")
    assert damaged[1].startswith(f"{none}: holds no call that can be read: line 1, column 12: found 'Tensor")


def test_collecting_needs_no_paddle(pytester: pytest.Pytester) -> None:
    unpack_real(pytester.path)
    (found,) = collected(pytester, f"--probe-dump={pytester.path}")
    assert found.endswith("forward_rank0_all.json::(framework)")


def test_show_lists_records_of_paddle_dumps(pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(pytester.path / "conftest.py"))
    unpack_real(pytester.path)
    shutil.copy(LINES, pytester.path / "lines.txt")
    assert main(["show", str(pytester.path)]) == 0
    text = capsys.readouterr().out
    assert "forward_rank0_all.json: 31 records (paddle, tensor)\n" in text
    assert "lines.txt: 40 records (paddle, configurations)\n" in text
    item, reason = next(line for line in text.splitlines() if "Tensor.__setitem__.6" in line).split("  skip: ")
    assert item.strip() == "paddle.Tensor.__setitem__.6.forward"
    assert reason == "framework not installed: paddle is not installed: pip install 'pytest-probe[paddle]'"
    assert "forward_rank0_half" not in text


def test_parts_are_collected_where_nothing_holds_the_whole(pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml("[tool.pytest.ini_options]\nprobe_collect = true\n")
    body = {"paddle.add*0": entry(tensor())}
    for name in ("all", "half", "other"):
        write(pytester.path / "rank0", body, f"forward_rank0_{name}.json")
    write(pytester.path / "rank1", body, "forward_rank1_half.json")
    (pytester.path / "rank1/lines.txt").write_text(GOOD)
    found = {name.partition("::")[0] for name in collected(pytester)}
    assert sorted(found) == ["rank0/forward_rank0_all.json", "rank1/forward_rank1_half.json", "rank1/lines.txt"]
