"""`pytest-probe capture` and `--probe-capture`: a program and a test run as they are, and what they called."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

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
print(__name__, sys.argv[1:], float(model.weight.sum()))
sys.exit(int(sys.argv[1]))
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
    """Run the command as a user does."""
    command = [sys.executable, "-c", "from pytest_probe.cli import main; raise SystemExit(main())", "capture", *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return path


def test_a_program_runs_as_it_is_and_leaves_its_first_step(program: Path, tmp_path: Path) -> None:
    plain = subprocess.run([sys.executable, program, "3", "--lr"], capture_output=True, text=True, timeout=120)
    ran = captured(tmp_path, "train.py", "3", "--lr")
    assert (ran.stdout, ran.returncode) == (plain.stdout, plain.returncode) == (plain.stdout, 3)
    assert plain.stdout.startswith("__main__ ['3', '--lr']")
    (dump,) = tmp_path.glob("dumps/*/*/dump.json")
    assert dump.parent.parent.name == "step0"
    assert "Functional.linear.0.backward" in names(dump)
    assert "Functional.linear.1.forward" not in names(dump)


def test_steps_end_with_those_of_the_first_optimizer(program: Path, tmp_path: Path) -> None:
    assert captured(tmp_path, "-o", "out", "--step=1,2", "train.py", "0").returncode == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["step1", "step2"]
    (dump,) = tmp_path.glob("out/step1/*/dump.json")
    assert [name for name in names(dump) if "linear" in name and "forward" in name] == [
        "Functional.linear.0.forward",
        "Functional.linear.1.forward",
    ]


def test_a_module_and_a_configuration(program: Path, tmp_path: Path) -> None:
    told = {"task": "structure", "step": [0], "structure": {"list": ["linear"]}}
    (tmp_path / "config.json").write_text(json.dumps(told))
    assert captured(tmp_path, "--config", "config.json", "-m", "train", "0").returncode == 0
    (dump,) = tmp_path.glob("dumps/step0/*/dump.json")
    assert {name.split(".")[1] for name in names(dump)} == {"linear"}


def test_a_program_that_raises_leaves_what_it_called(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import torch\ntorch.ones(2)\nraise KeyError('mine')\n")
    ran = captured(tmp_path, "broken.py")
    assert (ran.returncode, "KeyError: 'mine'" in ran.stderr) == (1, True)
    (dump,) = tmp_path.glob("dumps/step0/*/dump.json")
    assert names(dump) == ["Torch.ones.0.forward"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "give the program"),
        (["none.py"], "'none.py' cannot be used; there is no such file"),
        (["--task=all", "train.py"], "'all' cannot be used; give one of statistics"),
        (["--step=x", "train.py"], "'x' cannot be used"),
    ],
)
def test_arguments_that_cannot_be_used(program: Path, tmp_path: Path, args: list[str], words: str) -> None:
    ran = captured(tmp_path, *args)
    assert ran.returncode == 2
    assert words in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("workers", [0, 2])
def test_a_test_run_is_recorded_and_checked(pytester: pytest.Pytester, workers: int) -> None:
    pytester.makepyfile(test_mine=SUITE)
    parallel = [f"-n{workers}"] if workers else ["-pno:xdist"]
    result = pytester.runpytest_subprocess("--probe-capture=dumps", *parallel)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["probe: recorded the API calls*: *dumps"])
    found = [name for dump in pytester.path.glob("dumps/step0/*/dump.json") for name in names(dump)]
    assert {"Tensor.add.0.forward", "Functional.gelu.0.forward", "Functional.gelu.0.backward"} <= set(found)
    checked = pytester.runpytest("--probe-dump=dumps", "-pno:xdist")
    checked.assert_outcomes(passed=len(found))


def test_a_run_that_calls_nothing_says_so(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_nothing(): pass")
    result = pytester.runpytest_subprocess("--probe-capture=dumps")
    result.stdout.fnmatch_lines(["probe: no API call was recorded"])


def test_recording_and_checking_are_two_runs(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest("--probe-capture=dumps", "--probe-dump=dumps")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--probe-capture: 'dumps' cannot be used beside --probe-dump;*"])
