"""Which paths run, and wrong values: one message before anything is collected, exit status 4."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pytest_probe.options import OPTIONS
from pytest_probe.standards import STANDARDS
from pytest_probe.standards.tools import TOOLS
from tests.acceptance.conftest import DumpMaker, entries
from tests.support.running import collected as collect

ONE = {"Torch.argmax.0.forward": entries()["Torch.argmax.0.forward"]}
NAME = "Torch.argmax.0.forward"


@pytest.fixture(autouse=True)
def _user_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_mine="def test_mine(): pass")


def test_dumps_run_alone_without_paths_and_beside_given_ones(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump(data=ONE)
    assert collect(pytester, "--probe-dump=dump.json") == [f"dump.json::{NAME}"]
    assert collect(pytester, "--probe-dump=dump.json", "test_mine.py") == [
        "test_mine.py::test_mine",
        f"dump.json::{NAME}",
    ]
    assert collect(pytester) == ["test_mine.py::test_mine"]


@pytest.mark.parametrize("target", ["dump.json", f"dump.json::{NAME}"])
def test_a_dump_named_as_a_path_is_collected(pytester: pytest.Pytester, make_dump: DumpMaker, target: str) -> None:
    make_dump(data=ONE)
    assert collect(pytester, target) == [f"dump.json::{NAME}"]


def test_another_data_file_is_none_of_ours(pytester: pytest.Pytester) -> None:
    (pytester.path / "data.json").write_text("{}")
    with pytest.raises(pytest.UsageError, match=r"not found: .*data\.json"):
        collect(pytester, "data.json")


def test_folders_are_collected_where_the_ini_says_so(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump("cases/gpt/dump.json", ONE)
    assert collect(pytester, "cases") == []
    pytester.makeini("[pytest]\nprobe_collect = true")
    assert collect(pytester, "cases") == [f"cases/gpt/dump.json::{NAME}"]


def test_a_folder_expands_to_its_dumps(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    for rank in (0, 1):
        make_dump(f"step0/rank{rank}/dump.json", ONE)
    assert collect(pytester, "--probe-dump=step0") == [f"step0/rank{rank}/dump.json::{NAME}" for rank in (0, 1)]


@pytest.mark.parametrize("place", ["cases", "build", "."])
def test_dumps_of_the_ini_count_beside_the_tests(pytester: pytest.Pytester, make_dump: DumpMaker, place: str) -> None:
    """Without paths; also where the dump lies among the tests, and in a folder that pytest leaves out."""
    make_dump(f"{place}/dump.json", ONE)
    name = os.path.normpath(f"{place}/dump.json::{NAME}")
    pytester.makepyprojecttoml(f'[tool.pytest]\nprobe_dump = ["{place}/dump.json"]\nprobe_seed = 7')
    assert sorted(collect(pytester)) == [name, "test_mine.py::test_mine"]
    assert collect(pytester, "test_mine.py") == ["test_mine.py::test_mine"]
    assert collect(pytester, "--probe-dump=" + name.partition("::")[0]) == [name]
    os.chdir(pytester.mkdir("sub"))
    assert collect(pytester) == [name]


@pytest.mark.parametrize("place", ["tests", "elsewhere"])
def test_dumps_of_the_ini_hide_no_conftest_of_testpaths(
    pytester: pytest.Pytester, make_dump: DumpMaker, place: str
) -> None:
    """The folders of testpaths are collected with their conftest, also where the dump lies in one."""
    make_dump(f"{place}/dump.json", ONE)
    pytester.makepyprojecttoml(f'[tool.pytest]\nprobe_dump = ["{place}/dump.json"]\ntestpaths = ["tests"]')
    (pytester.path / "tests").mkdir(exist_ok=True)
    (pytester.path / "tests/test_more.py").write_text("def test_more(mine): pass\n")
    (pytester.path / "tests/conftest.py").write_text("import pytest\nmine = pytest.fixture(lambda: None)\n")
    result = pytester.runpytest("-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines_random(["tests/test_more.py::test_more *", f"{place}/dump.json::{NAME} *"])


def test_ids_outside_rootdir_are_absolute(pytester: pytest.Pytester, make_dump: DumpMaker, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    dump = outside / "dump.json"
    dump.write_text(make_dump(data=ONE).read_text())
    assert collect(pytester, f"--probe-dump={dump}") == [f"{dump}::{NAME}"]


def test_help_names_every_option_and_the_standards_that_are_registered(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest("--help")
    result.stdout.fnmatch_lines(["API precision checks: begin here:", "*--probe-dump=PATH*", "*--probe-skip-api=GLOB*"])
    result.stdout.fnmatch_lines(["*probe_strict (bool): * See --probe-strict", "*probe_namespaces (linelist):*"])
    lines = result.outlines
    listed = [line.split()[0].partition("=")[0] for line in lines if line.startswith("  --probe-")]
    assert sorted(listed) == sorted(option.flag for option in OPTIONS if option.cli)
    last = lines[lines.index("Standards of tools, for --probe-standard:") + 1 :]
    names = {line.split()[0] for line in last if line.startswith("  ") and line[2] != " "}
    assert names == set(STANDARDS) - {"auto", "noise", "exact", "finite"}
    assert all(tool.release.help in " ".join(" ".join(last).split()) for tool in TOOLS.values())


def test_incoming_gradients_that_no_dump_has_are_generated_and_noted(
    pytester: pytest.Pytester, make_dump: DumpMaker
) -> None:
    found = entries()
    found["Functional.relu.0.backward"] = {"output": found["Functional.relu.0.backward"]["output"]}
    make_dump(data=found)
    result = pytester.runpytest("--probe-dump=dump.json", "--probe-out=out", "--probe-direction=backward")
    result.assert_outcomes(passed=2)
    lines = map(json.loads, (pytester.path / "out/results.jsonl").read_text().splitlines())
    assert {line["id"].rpartition("::")[2]: line["notes"] for line in lines} == {
        "Functional.relu.0.backward": ["incoming gradients are generated: the dump has none"],
        "Functional.linear.0.backward": [],
    }
