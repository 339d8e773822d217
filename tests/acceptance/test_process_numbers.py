"""A capture of a process that trains alone lies in a folder `proc1234`: no id holds that number."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.acceptance.conftest import DumpMaker, entries
from tests.support.running import collected as collect

RELU, ARGMAX = "Functional.relu.0.forward", "Torch.argmax.0.forward"
BOTH = {name: entries()[name] for name in (RELU, ARGMAX)}
IDS = [f"run/step{step}/rank0/dump.json::{name}" for step in (0, 1) for name in (RELU, ARGMAX)]


def capture(make_dump: DumpMaker, number: int) -> None:
    for step in (0, 1):
        make_dump(f"run/step{step}/proc{number}/dump.json", BOTH)


def recapture(pytester: pytest.Pytester, number: int) -> None:
    for folder in list((pytester.path / "run").glob("step*/proc*")):
        folder.rename(folder.with_name(f"proc{number}"))


@pytest.mark.usefixtures("planted")
def test_ids_survive_the_next_capture(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    capture(make_dump, 4711)
    pytester.makepyfile(test_mine="def test_mine(): assert False")
    args = ("--probe-dump=run", "-n1")
    result = pytester.runpytest(*args, "--probe-out=out", "--junitxml=junit.xml", "test_mine.py")
    result.assert_outcomes(failed=3, passed=2)
    result.stdout.fnmatch_lines_random([f"FAILED {IDS[0]}*", f"FAILED {IDS[2]}*"])
    results = [json.loads(line)["id"] for line in (pytester.path / "out/results.jsonl").read_text().splitlines()]
    assert sorted(results) == sorted(name.removeprefix("run/") for name in IDS)
    names = {case.get("classname") for case in ElementTree.parse(pytester.path / "junit.xml").iter("testcase")}
    assert not [name for name in names if "4711" in str(name)]
    recapture(pytester, 815)
    result = pytester.runpytest(*args, "--lf", "test_mine.py")
    result.assert_outcomes(failed=3, deselected=0)


def test_an_id_is_a_path_of_the_command_line(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    capture(make_dump, 4711)
    assert collect(pytester, "--probe-dump=run") == IDS
    assert collect(pytester, IDS[1], IDS[2]) == [IDS[1], IDS[2]]
    assert collect(pytester, "run/step1/proc4711/dump.json") == IDS[2:]


@pytest.mark.usefixtures("planted")
def test_every_id_of_a_report_is_one(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    """Node id, command and portable id run when they are pasted."""
    capture(make_dump, 4711)
    step = "run/step0/rank0/dump.json"
    result = pytester.runpytest("--probe-dump=run/step0", "--probe-out=out")
    (id, *_) = [json.loads(line)["id"] for line in (pytester.path / "out/results.jsonl").read_text().splitlines()]
    name = id.partition("::")[2]
    assert id == f"dump.json::{name}"
    assert "proc4711" not in result.stdout.str().partition("collected")[2]
    assert collect(pytester, f"{step}::{name}") == [f"{step}::{name}"]
    # Two steps have that label: a longer one is needed.
    assert collect(pytester, f"step0/rank0/{id}") == [f"{step}::{name}"]
    with pytest.raises(pytest.UsageError, match="not found: "):
        collect(pytester, id)
    shutil.rmtree(pytester.path / "run/step1")
    assert collect(pytester, id) == [f"{step}::{name}"]


def test_several_are_numbered_and_ranks_kept(pytester: pytest.Pytester, make_dump: DumpMaker, tmp_path: Path) -> None:
    for folder in ("proc99", "proc100", "rank0"):
        make_dump(f"run/{folder}/dump.json", {ARGMAX: entries()[ARGMAX]})
    ids = [f"run/{folder}/dump.json::{ARGMAX}" for folder in ("proc0", "proc1", "rank0")]
    assert collect(pytester, "--probe-dump=run") == ids
    assert collect(pytester, "--probe-dump=run/proc100") == ids[1:2]
    assert collect(pytester, ids[1]) == ids[1:2]


@pytest.mark.usefixtures("planted")
def test_a_worker_that_dies_is_reported_by_it(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump("run/proc99/dump.json", BOTH)
    with (pytester.path / "conftest.py").open("a") as conftest:
        conftest.write("\ndef pytest_runtest_call(item):\n    import os\n    'argmax' in item.name and os._exit(1)\n")
    result = pytester.runpytest("--probe-dump=run", "-n1", "--probe-out=out")
    result.stdout.fnmatch_lines(["*the process died with exit status 1*", "to reproduce: *rank0/dump.json*"])
    results = [json.loads(line)["id"] for line in (pytester.path / "out/results.jsonl").read_text().splitlines()]
    assert sorted(results) == [f"dump.json::{RELU}", f"dump.json::{ARGMAX}"]
