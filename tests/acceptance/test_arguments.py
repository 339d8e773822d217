"""Which paths run, and by which ids."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pytest_probe.options import OPTIONS
from pytest_probe.standards import STANDARDS
from pytest_probe.standards.tools import TOOLS
from tests.acceptance.conftest import DumpMaker, entries
from tests.support.other_plugins import Ran
from tests.support.running import collected as collect
from tests.support.running import refusal

RELU, NAME = "Functional.relu.0.forward", "Torch.argmax.0.forward"
ONE, BOTH = ({name: entries()[name] for name in names} for names in ((NAME,), (RELU, NAME)))
IDS = [f"run/step{step}/rank0/dump.json::{name}" for step in (0, 1) for name in (RELU, NAME)]


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


def test_a_dump_named_as_a_path_is_collected_and_no_other_data_file(
    pytester: pytest.Pytester, make_dump: DumpMaker
) -> None:
    make_dump("cases/gpt/dump.json", ONE)
    for target in ("cases/gpt/dump.json", f"cases/gpt/dump.json::{NAME}"):
        assert collect(pytester, target) == [f"cases/gpt/dump.json::{NAME}"]
    (pytester.path / "data.json").write_text("{}")
    with pytest.raises(pytest.UsageError, match=r"not found: .*data\.json"):
        collect(pytester, "data.json")
    # Of folders where the ini says so.
    assert collect(pytester, "cases") == []
    pytester.makeini("[pytest]\nprobe_collect = true")
    assert collect(pytester, "cases") == [f"cases/gpt/dump.json::{NAME}"]


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


def _tests_with_a_conftest(folder: Path) -> None:
    """A test of which the folder's conftest makes the id."""
    (folder / "test_more.py").write_text("def test_more(name): pass\n")
    (folder / "conftest.py").write_text("def pytest_generate_tests(metafunc): metafunc.parametrize('name', ['mine'])\n")


def test_dumps_of_the_ini_hide_no_conftest_of_testpaths(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    """The folders of testpaths are collected with their conftest, also where a dump lies in one."""
    dumps = [f"{place}/dump.json" for place in ("elsewhere", "tests")]
    for dump in dumps:
        make_dump(dump, ONE)
    pytester.makepyprojecttoml(f'[tool.pytest]\nprobe_dump = {dumps}\ntestpaths = ["tests"]')
    _tests_with_a_conftest(pytester.path / "tests")
    names = collect(pytester)
    assert sorted(names) == sorted(["tests/test_more.py::test_more[mine]", *(f"{dump}::{NAME}" for dump in dumps)])


def test_testpaths_may_lie_outside_of_the_project(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    """The conftest of such a folder counts, although a dump lies in it."""
    make_dump("checks/dump.json", ONE)
    _tests_with_a_conftest(pytester.path / "checks")
    project = pytester.mkdir("project")
    text = '[tool.pytest]\nprobe_dump = ["../checks/dump.json"]\ntestpaths = ["../checks"]\n'
    (project / "pyproject.toml").write_text(text)
    os.chdir(project)
    assert collect(pytester) == [
        f"{pytester.path}/checks/dump.json::{NAME}",
        "test_more.py::test_more[mine]",
    ]


def capture(make_dump: DumpMaker, number: int) -> None:
    """As a process that trains alone leaves it: no id holds its number."""
    for step in (0, 1):
        make_dump(f"run/step{step}/proc{number}/dump.json", BOTH)


def test_an_id_is_a_path_of_the_command_line(pytester: pytest.Pytester, make_dump: DumpMaker, tmp_path: Path) -> None:
    capture(make_dump, 4711)
    assert collect(pytester, "--probe-dump=run") == IDS
    assert collect(pytester, IDS[1], IDS[2]) == [IDS[1], IDS[2]]
    assert collect(pytester, "run/step1/proc4711/dump.json") == IDS[2:]
    # Of several processes by their order, and of ranks as they are; outside rootdir it is absolute.
    ids = []
    for folder, name in (("proc99", "proc0"), ("proc100", "proc1"), ("rank0", "rank0")):
        make_dump(f"several/{folder}/dump.json", ONE)
        ids.append(f"several/{name}/dump.json::{NAME}")
    assert collect(pytester, "--probe-dump=several") == ids
    assert collect(pytester, "--probe-dump=several/proc100") == collect(pytester, ids[1]) == ids[1:2]
    outside = shutil.copytree("several", tmp_path / "elsewhere") / "rank0/dump.json"
    assert collect(pytester, f"--probe-dump={outside}") == [f"{outside}::{NAME}"]


@pytest.mark.usefixtures("planted")
def test_ids_survive_the_next_capture(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    """Where a worker dies as well."""
    capture(make_dump, 4711)
    with (pytester.path / "conftest.py").open("a") as conftest:
        conftest.write("\ndef pytest_runtest_call(item):\n    import os\n")
        conftest.write("    'argmax' in item.name and 'step1' in item.nodeid and os._exit(1)\n")
    args = ("--probe-dump=run", "-n1", "test_mine.py")
    found = Ran(pytester.runpytest(*args, "--probe-out=out", "--junitxml=junit.xml"), pytester.path)
    found.result.assert_outcomes(failed=3, passed=2)
    found.result.stdout.fnmatch_lines_random([f"FAILED {IDS[place]}*" for place in (0, 2, 3)])
    found.result.stdout.fnmatch_lines(["*the process died with exit status 1*", f"to reproduce: *{IDS[3]}*"])
    assert sorted(row["id"] for row in found.rows) == sorted(name.removeprefix("run/") for name in IDS)
    assert "4711" not in found.result.stdout.str().partition("collected")[2]
    assert "proc4711" not in (pytester.path / "junit.xml").read_text()
    for folder in list((pytester.path / "run").glob("step*/proc*")):
        folder.rename(folder.with_name("proc815"))
    assert sorted(collect(pytester, *args[::2], "--lf")) == [IDS[place] for place in (0, 2, 3)]


def test_a_portable_id_runs_when_it_is_pasted(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    capture(make_dump, 4711)
    # Two steps have the label of one: a longer one is needed.
    assert collect(pytester, f"step0/rank0/dump.json::{NAME}") == IDS[1:2]
    with pytest.raises(pytest.UsageError, match="not found: "):
        collect(pytester, f"dump.json::{NAME}")
    shutil.rmtree(pytester.path / "run/step1")
    assert collect(pytester, f"dump.json::{NAME}") == IDS[1:2]


CONFIGURED, BARE = "configured", "bare"


@pytest.fixture
def project(pytester: pytest.Pytester, make_dump: DumpMaker) -> Path:
    """project/ is where pytest starts, below is a folder with an ini file of its own; elsewhere/ lies beside."""
    for folder in ("project", "project/below", "elsewhere"):
        make_dump(f"{folder}/dump.json", ONE)
    (pytester.path / "project/below/pytest.ini").write_text("[pytest]\naddopts = --collect-only")
    (pytester.path / "test_mine.py").rename(pytester.path / "project/test_mine.py")
    os.chdir(pytester.path / "project")
    return pytester.path / "project"


def configured(project: Path) -> None:
    (project / "pyproject.toml").write_text("[tool.pytest.ini_options]\nprobe_seed = '7'\n")


def run(pytester: pytest.Pytester, *args: str) -> list[str]:
    """rootdir, the ini file, and the node ids."""
    config = pytester.parseconfigure(*args)
    return [str(config.rootpath), str(config.inipath), *collect(pytester, *args)]


def refused(pytester: pytest.Pytester, *args: str, written: str) -> None:
    """The run says to write `=`, and does nothing else."""
    flag, path = written.split("=")
    refusal(pytester, *args).fnmatch_lines([f"{flag} {path}: with a space pytest *; write {written}"])


@pytest.mark.parametrize(
    ("place", "rootdir"), [("dump.json", CONFIGURED), ("dump.json", BARE), ("below", BARE), ("../elsewhere", BARE)]
)
def test_a_space_is_an_equals_sign(pytester: pytest.Pytester, project: Path, place: str, rootdir: str) -> None:
    (project / "below/pytest.ini").unlink()
    if rootdir == CONFIGURED:
        configured(project)
    root, ini, *names = run(pytester, "--rootdir=.", "--probe-dump", place)
    assert (root, ini) == (str(project), str(project / "pyproject.toml") if rootdir == CONFIGURED else "None")
    dump = (project / place).resolve()
    dump = dump / "dump.json" if dump.is_dir() else dump
    assert names == [f"{dump.relative_to(project) if dump.is_relative_to(project) else dump}::{NAME}"]


@pytest.mark.parametrize("rootdir", [CONFIGURED, BARE])
@pytest.mark.parametrize("place", ["below/dump.json", "../elsewhere"])
def test_a_path_that_would_change_rootdir_is_refused(
    pytester: pytest.Pytester, project: Path, place: str, rootdir: str
) -> None:
    if rootdir == CONFIGURED:
        configured(project)
    refused(pytester, "--probe-dump", place, written=f"--probe-dump={place}")
    root, ini, *names = run(pytester, f"--probe-dump={place}")
    assert (root, ini) == (str(project), str(project / "pyproject.toml") if rootdir == CONFIGURED else "None")
    assert len(names) == 1


@pytest.mark.parametrize("name", ["tox.ini", "setup.cfg"])
def test_a_file_that_configures_other_tools_changes_nothing(
    pytester: pytest.Pytester, project: Path, name: str
) -> None:
    configured(project)
    (project / "below/pytest.ini").unlink()
    (project / "below" / name).write_text("[flake8]\nmax-line-length = 120\n")
    root, _, *names = run(pytester, "--probe-dump", "below/dump.json")
    assert (root, names) == (str(project), [f"below/dump.json::{NAME}"])


def test_a_path_after_a_space_keeps_the_rootdir_with_workers(pytester: pytest.Pytester, project: Path) -> None:
    configured(project)
    result = pytester.runpytest("--probe-dump", "dump.json", "-n1", "-v")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"rootdir: {project}", "configfile: pyproject.toml"])


def test_a_space_with_tests_and_other_options_and_in_the_environment(
    pytester: pytest.Pytester, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(project)
    rules = project.parent / "elsewhere/rules.json"
    rules.write_text('{"black_list": ["linear"]}')
    root, _, *names = run(pytester, "--probe-standards-file", str(rules), "test_mine.py", "--probe-dump", "dump.json")
    assert (root, names) == (str(project), ["test_mine.py::test_mine", f"dump.json::{NAME}"])
    monkeypatch.setenv("PYTEST_ADDOPTS", "--probe-dump ../elsewhere/dump.json")
    refused(pytester, written="--probe-dump=../elsewhere/dump.json")
    monkeypatch.setenv("PYTEST_ADDOPTS", "--probe-dump dump.json")
    assert run(pytester)[0] == str(project)


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
