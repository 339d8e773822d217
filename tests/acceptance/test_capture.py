"""`pytest-probe capture` and `--probe-capture`: a program and a test run as they are, and what they called."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TypeAlias

import numpy as np
import pytest
import torch
from msgspec import Struct

from pytest_probe.capture.snapshot import Seen
from pytest_probe.capture.statistics import count_large, fill_together
from pytest_probe.capture.writer import DiskFills, check_room
from pytest_probe.cli import main
from pytest_probe.numerics.dtypes import AnyArray
from tests.support import forks
from tests.support.running import collected, refusal

COMMAND = ("-c", "from pytest_probe.cli import main; raise SystemExit(main())", "capture")
PROGRAM = """
import sys, torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
first, second = torch.optim.SGD(model.parameters(), 0.1), torch.optim.Adam(model.parameters())
for _ in range(3):
    for optimizer in (first, second):
        optimizer.zero_grad()
        model(torch.ones(3, 4)).square().mean().backward()
        optimizer.step()
print(__name__, sys.argv[1:], float(model.weight.detach().sum()))
sys.exit(int(sys.argv[1]))
"""
# What is left of the disk is asked for before anything is written.
FILLING = """
import shutil, sys, time, torch
from pathlib import Path
usage = type(shutil.disk_usage("."))
shutil.disk_usage = lambda path: usage({total}, 0, {total})
torch.ones(2)
while not any(b"ones" in path.read_bytes() for path in Path("dumps").glob("*/*/dump.json")):
    time.sleep(0.01)
shutil.disk_usage = lambda path: usage({total}, 0, {free})
torch.zeros(2)
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    model(torch.ones(2)).sum().backward()
    optimizer.step()
print("went on")
"""
SUITE = """
import torch

def test_forward():
    assert torch.ones(3).add(1).sum() == 6

def test_backward():
    x = torch.ones(3, requires_grad=True)
    torch.nn.functional.gelu(x).sum().backward()
"""


def names(path: Path) -> list[str]:
    return list(json.loads(path.read_text())["data"])


def captured(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """The command in a process that has torch."""
    return forks.run([*COMMAND, *args], folder, os.environ)


def captured_anew(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """The command as a user runs it: torch is imported by the program."""
    return subprocess.run([sys.executable, *COMMAND, *args], cwd=folder, capture_output=True, text=True, timeout=600)


Here: TypeAlias = "Callable[..., subprocess.CompletedProcess[str]]"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Here:
    """The command in this process, for a program that leaves nothing behind in it."""
    monkeypatch.chdir(tmp_path)

    def run(text: str, *args: str) -> subprocess.CompletedProcess[str]:
        Path("train.py").write_text(text)
        capfd.readouterr()
        try:
            status = main(["capture", *args])
        except SystemExit as ended:
            status = int(ended.code or 0)
        return subprocess.CompletedProcess(args, status, *capfd.readouterr())

    return run


class Recording(Struct, frozen=True):
    """A capture of PROGRAM that several tests look at; those that change its folder take a copy."""

    folder: Path
    process: subprocess.CompletedProcess[str]


def recording(folder: Path, run: Callable[..., subprocess.CompletedProcess[str]], *args: str) -> Recording:
    (folder / "train.py").write_text(PROGRAM)
    return Recording(folder, run(folder, *args))


@pytest.fixture(scope="module")
def first_step(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return recording(tmp_path_factory.mktemp("first_step"), captured_anew, "train.py", "3", "--lr")


@pytest.fixture(scope="module")
def three_steps(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return recording(tmp_path_factory.mktemp("three_steps"), captured, "--task=tensor", "--step=0-2", "train.py", "0")


def earlier_dump(folder: Path) -> Path:
    """What an earlier capture left."""
    dump = folder / "dumps/step0/proc1/dump.json"
    dump.parent.mkdir(parents=True)
    dump.write_text("{}")
    return dump


def test_a_program_runs_as_it_is_and_leaves_its_first_step(
    first_step: Recording, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program, ran = first_step.folder / "train.py", first_step.process
    monkeypatch.setattr(sys, "argv", [str(program), "3", "--lr"])
    with pytest.raises(SystemExit, match="3"):
        runpy.run_path(str(program), run_name="__main__")
    plain = capfd.readouterr().out
    assert (ran.stdout, ran.returncode) == (plain, 3)
    assert plain.startswith("__main__ ['3', '--lr']")
    (dump,) = first_step.folder.glob("dumps/*/*/dump.json")
    assert dump.parent.parent.name == "step0"
    assert "Functional.linear.0.backward" in names(dump)
    assert "Functional.linear.1.forward" not in names(dump)


def test_capture_reports_calls_size_and_folder_in_one_line(first_step: Recording) -> None:
    (dump,) = first_step.folder.glob("dumps/step0/*/dump.json")
    forwards = sum(name.endswith(".forward") for name in names(dump))
    pattern = rf"pytest-probe: recorded {forwards} calls of 1 step, [\d.]+ kB and [\d.]+ s a step: dumps\n"
    assert re.fullmatch(pattern, first_step.process.stderr)


def test_steps_end_with_those_of_the_first_optimizer(three_steps: Recording) -> None:
    (dump,) = three_steps.folder.glob("dumps/step1/*/dump.json")
    assert [name for name in names(dump) if "linear" in name and "forward" in name] == [
        "Functional.linear.0.forward",
        "Functional.linear.1.forward",
    ]


def test_after_the_first_of_several_steps_it_says_what_one_costs(three_steps: Recording) -> None:
    cost, recorded = three_steps.process.stderr.splitlines()
    assert re.fullmatch(r"pytest-probe: [\d.]+ kB and [\d.]+ s a step; [\d.,]+ [GT]B free; 2 steps left", cost)
    assert re.fullmatch(r"pytest-probe: recorded \d+ calls of 3 steps, [\d.]+ kB and [\d.]+ s a step: dumps", recorded)


def test_a_program_without_a_framework_is_a_warning_and_a_status(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    assert_nothing_recorded(captured_anew(tmp_path, "train.py"), 1, "the program imported none of torch, paddle")
    assert not (tmp_path / "dumps").exists()


def assert_nothing_recorded(ran: subprocess.CompletedProcess[str], status: int, why: str) -> None:
    assert (ran.returncode, ran.stderr.count("\n")) == (status, 1)
    assert ran.stderr.startswith(f"pytest-probe: nothing was recorded: {why}")


@pytest.mark.parametrize(
    ("text", "args", "status", "why"),
    [
        ("import torch, sys; sys.exit(4)", [], 4, "the program made no call that is asked for"),
        ("import torch; torch.ones(2)", ["--step=3"], 1, "the program ended in step 0, and it was asked for step 3"),
    ],
)
def test_nothing_recorded_is_a_warning_and_a_status(
    here: Here, tmp_path: Path, text: str, args: list[str], status: int, why: str
) -> None:
    assert_nothing_recorded(here(text, *args, "train.py"), status, why)
    assert not (tmp_path / "dumps").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import no_such_module", "nothing was recorded: the program ended with ModuleNotFoundError before it"),
        ("import torch; torch.ones(2); import no_such_module", "recorded 1 call of 1 step"),
    ],
)
def test_a_program_that_dies_shows_its_traceback_first(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "train.py").write_text(text)
    ran = captured_anew(tmp_path, "train.py")
    traceback, error, last = ran.stderr.rpartition("ModuleNotFoundError: No module named 'no_such_module'\n")
    assert (ran.returncode, bool(error)) == (1, True)
    assert traceback.startswith("Traceback (most recent call last):")
    assert traceback.count("Traceback") == 1
    assert last.startswith(f"pytest-probe: {said}")
    assert last.count("\n") == 1
    found = [name for dump in tmp_path.glob("dumps/step0/*/dump.json") for name in names(dump)]
    assert found == ["Torch.ones.0.forward"] * ("torch" in text)


def test_the_program_ends_after_the_last_step_that_is_wanted(tmp_path: Path) -> None:
    """What it does before its first call, an hour by a clock that goes forward, is no step's time."""
    late = "import time, torch\nnow = time.perf_counter\ntime.perf_counter = lambda: now() + 3600\n"
    (tmp_path / "train.py").write_text(late + PROGRAM)
    ran = captured(tmp_path, "--step=0-1", "--stop", "train.py", "3")
    assert (ran.returncode, ran.stdout) == (0, "")
    assert sorted(path.name for path in tmp_path.glob("dumps/step*")) == ["step0", "step1"]
    seconds = re.findall(r"([\d.,]+) s a step", ran.stderr)
    assert len(seconds) == 2
    assert all(float(each.replace(",", "")) < 1000 for each in seconds)


def test_what_is_compiled_is_recorded_where_that_is_asked_for(here: Here, tmp_path: Path) -> None:
    text = "import torch\nf = torch.compile(lambda x: x.sin(), backend='eager')\nf(f(torch.ones(2)))\n"
    ran = here(text, "--compiled=eager", "train.py")
    (dump,) = tmp_path.glob("dumps/step0/*/dump.json")
    assert "Tensor.sin.1.forward" in names(dump)
    assert (ran.returncode, ran.stderr.count("\n")) == (0, 1)


def test_no_overflow_is_nothing_to_warn_of(here: Here) -> None:
    ran = here("import torch; torch.ones(2).add(1)", "--task=overflow_check", "train.py")
    assert (ran.returncode, "nothing was recorded" in ran.stderr) == (0, False)


@pytest.mark.parametrize("command", [["broken.py"], ["missing.py"], ["-m", "broken"]])
def test_overwrite_keeps_the_dump_where_the_program_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    dump = earlier_dump(tmp_path)
    (tmp_path / "broken.py").write_text("def f(:\n")
    assert main(["capture", "--overwrite", *command]) == 2
    assert dump.read_text() == "{}"


def test_ranks_write_side_by_side_and_one_speaks(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rank(number: int, world: int, *args: str) -> subprocess.CompletedProcess[str]:
        with monkeypatch.context() as patch:
            patch.setenv("RANK", str(number))
            patch.setenv("WORLD_SIZE", str(world))
            return here(PROGRAM, *args, "train.py", "0")

    assert [rank(number, 2, "--step=0-1").returncode for number in (0, 1)] == [0, 0]
    assert sorted(path.name for path in tmp_path.glob("dumps/step0/*")) == ["rank0", "rank1"]
    assert rank(1, 2).returncode == 2
    # Fewer ranks and steps than before leave none of the earlier ones, and what was not recorded.
    (tmp_path / "dumps/step1/notes.txt").write_text("mine")
    assert "pytest-probe: recorded" in rank(0, 1, "--overwrite").stderr
    left = sorted(str(path.relative_to(tmp_path / "dumps")) for path in tmp_path.glob("dumps/*/*"))
    assert left == ["step0/rank0", "step1/notes.txt"]


@pytest.mark.parametrize(("total", "least"), [(100e9, 5e9), (10e9, 2e9)])
def test_a_share_of_the_disk_is_left_and_two_gigabytes_at_least(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, total: float, least: float
) -> None:
    disk = SimpleNamespace(total=total, free=least)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: disk)
    check_room(tmp_path)
    disk.free = least - 1
    with pytest.raises(DiskFills, match="of the disk are left"):
        check_room(tmp_path)


def test_a_disk_that_fills_ends_the_recording_alone(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FILLING.format(total=100e9, free=4e9))
    ran = captured(tmp_path, "--step=all", "train.py")
    assert (ran.returncode, ran.stdout) == (0, "went on\n")
    (path,) = tmp_path.glob("dumps/step0/*")
    assert "Torch.ones.0.forward" in names(path / "dump.json")
    assert "Torch.zeros.0.forward" not in names(path / "dump.json")
    assert {each.name for each in path.iterdir()} == {"dump.json", "stack.json", "construct.json"}
    stopped, recorded = ran.stderr.splitlines()
    assert "of the disk are left, and a capture leaves" in stopped
    assert "the program continues" in stopped
    assert "recorded 1 call of 1 step" in recorded


FREE_BENCHMARK = (
    "config.json: task: 'free_benchmark' cannot be used; it is msprobe's free benchmarking, which perturbs the calls "
    'of a running program, and a recording does not have it; PrecisionDebugger(task="free_benchmark") in the program '
    "asks them; or record with task statistics, then check with pytest --probe-dump=DUMP"
)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("", "give the program"),
        ("none.py", "'none.py' cannot be used; there is no such file"),
        ("--task=all train.py", "'all' cannot be used; give one of statistics"),
        ("--step=x train.py", "'x' cannot be used"),
        ("--compiled=never train.py", "'never' cannot be used; give one of as-is, eager"),
        ("--config=config.json train.py", FREE_BENCHMARK),
        ("-o afile train.py", "-o: 'afile' cannot be used; give a folder that can be written: "),
        ("-o afile/inside train.py", "-o: 'afile/inside' cannot be used; give a folder that can be written: "),
        (
            "train.py",
            "pytest-probe: error: -o: 'dumps' cannot be used; it holds the dump of an earlier run (step0/proc1); give "
            "another folder, or replace it with --overwrite\n",
        ),
        (
            "--estimate --task=tensor train.py",
            "--task: 'tensor' cannot be used; --estimate says what a step takes by each of structure",
        ),
        (
            "--estimate --step=0-2 train.py",
            "--step: '0-2' cannot be used; --estimate records one step; give its number",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_before_the_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], args: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("raise SystemExit('it ran')")
    (tmp_path / "afile").touch()
    (tmp_path / "config.json").write_text('{"task": "free_benchmark", "free_benchmark": {"fuzz_device": "npu"}}')
    dump = earlier_dump(tmp_path)
    assert main(["capture", *args.split()]) == 2
    out, said = capfd.readouterr()
    assert out == ""
    assert words in said
    assert said.count("\n") == 1
    assert dump.read_text() == "{}"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_test_run_is_recorded_and_can_be_checked(pytester: pytest.Pytester, workers: int) -> None:
    pytester.makepyfile(test_mine=SUITE)
    if workers:
        result = pytester.runpytest("--probe-capture=dumps", f"-n{workers}")
    else:  # of torch that the tests import
        result = pytester.runpytest_subprocess("--probe-capture=dumps", "-pno:xdist")
    result.assert_outcomes(passed=2)
    calls = [each for dump in pytester.path.glob("dumps/step0/*/dump.json") for each in names(dump)]
    forwards = sum(each.endswith(".forward") for each in calls)
    processes = " in 2 processes" if workers else ""
    result.stdout.re_match_lines(
        [rf"probe: recorded {forwards} calls of 1 step{processes}, .*B and .* s a step: .*dumps$"]
    )
    found = [name for dump in pytester.path.glob("dumps/step0/*/dump.json") for name in names(dump)]
    assert {"Tensor.add.0.forward", "Functional.gelu.0.forward", "Functional.gelu.0.backward"} <= set(found)
    if workers:
        assert len(collected(pytester, "--probe-dump=dumps")) == len(found)


@pytest.mark.usefixtures("forked")
def test_a_run_that_calls_nothing_says_so(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_nothing(): pass")
    result = pytester.runpytest_subprocess("--probe-capture=dumps")
    result.stdout.fnmatch_lines(["probe: no API call was recorded"])


def test_a_test_run_refuses_the_folder_of_an_earlier_one(pytester: pytest.Pytester) -> None:
    earlier_dump(pytester.path)
    refusal(pytester, "--probe-capture=dumps").fnmatch_lines(
        ["*--probe-capture: 'dumps' cannot be used; it holds the dump of an earlier run (step0/proc1); *remove it"]
    )


def test_a_module_is_recorded_by_a_file_of_msprobes_as_it_is(tmp_path: Path) -> None:
    told = {
        "task": "statistics",
        "dump_path": "./dump_path",
        "rank": [],
        "step": ["0-999999999"],
        "level": "L1",
        "seed": 7,
        "is_deterministic": True,
        "acl_config": "",
        "tensor": {"backward_input": [], "online_run_ut": False, "host": "", "port": -1, "nfs_path": ""},
    }
    (tmp_path / "config.json").write_text(json.dumps(told))
    (tmp_path / "draws.py").write_text(
        "import torch; print(torch.rand(()).item(), torch.are_deterministic_algorithms_enabled())"
    )
    ran = captured(tmp_path, "--config", "config.json", "-m", "draws")
    drawn = torch.rand((), generator=torch.Generator().manual_seed(7)).item()
    assert (ran.stdout, ran.returncode) == (f"{drawn} True\n", 0)
    unused = "acl_config, tensor.backward_input"
    line = f"pytest-probe: config.json: these keys have no effect here: {unused}"
    assert ran.stderr.splitlines().count(line) == 1
    (dump,) = tmp_path.glob("dump_path/step0/*/dump.json")
    assert names(dump)[0] == "Torch.rand.0.forward"


def test_an_estimate_says_what_each_task_takes_and_leaves_nothing(here: Here, tmp_path: Path) -> None:
    made = here(PROGRAM, "--estimate", "-o", "later", "train.py", "0")
    assert made.returncode == 0
    assert made.stdout.startswith("__main__ ['0'] ")
    said = made.stderr.replace("pytest-probe: ", "").splitlines()
    assert said[0].endswith(" of 1 step, in a step like this:")
    costs = {line.partition(":")[0]: line.partition(": ")[2] for line in said[1:4]}
    assert list(costs) == ["--task=structure", "--task=statistics", "--task=tensor"]
    assert re.fullmatch(r"[\d.]+ kB and [\d.]+ s a step, room for [\d,]+ steps", costs["--task=tensor"])
    assert said[4].endswith(" free")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.py"]


def test_an_estimate_on_a_full_disk_ends_as_the_program_does(tmp_path: Path) -> None:
    """The disk fills when a sample of the tensors is written there."""
    filling = "import torch\ndef full(*given):\n    raise OSError(28, 'No space left on device')\ntorch.save = full\n"
    (tmp_path / "filling.py").write_text(filling + "torch.ones(3).add(1)\nprint('went on')\n")
    made = captured(tmp_path, "--estimate", "filling.py")
    assert (made.returncode, made.stdout) == (0, "went on\n")
    assert made.stderr == "pytest-probe: nothing can be estimated: [Errno 28] No space left on device\n"


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [("float16", np.array([0x7D01, 0xFC01, 1], np.uint16)), ("float32", np.array([0x7F800001, 1, 2], np.uint32))],
)
def test_memory_that_nothing_was_written_to_warns_of_nothing(dtype: str, bits: AnyArray) -> None:
    """It may hold NaN that signal."""
    values = np.tile(bits, 9000).view(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        count_large(values, large := Seen("torch.Tensor", dtype, [values.size], False))
        fill_together(values[:3], [3], [Seen("torch.Tensor", dtype, [3], False)])
    assert large.nan
