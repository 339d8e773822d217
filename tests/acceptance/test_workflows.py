"""The workflows of docs/ci.md: they are what their CI takes, and their commands do what the page says."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from string import Template
from types import MappingProxyType
from typing import Any

import pytest
import yaml

from pytest_probe.cli import main
from tests.acceptance.conftest import DumpMaker
from tests.features.gate.test_gate import DATA
from tests.support.pages import ROOT, blocks

# What a CI machine has and a test has not: installed packages, a network.
STUBS = {
    "pip": "exit 0",
    "curl": "exit 1",
    "junitparser": 'set -- $4 "$5"; test -f junit-recorded.xml && test -f junit-bfloat16.xml && touch junit.xml',
    "python3": 'mkdir -p .venv/bin && ln -sf "$(which pip)" .venv/bin/',
}
PYTEST = re.compile(r"(?:\S*/)?pytest (.*?)( \|\| test \$\? -eq 1)?$")
GITHUB_STEP = {"uses", "run", "with", "env", "if"}
GITLAB_JOB = {"image", "cache", "before_script", "extends", "stage", "parallel", "script", "artifacts", "when"}


def page(language: str, name: str) -> str:
    """The workflow file that a block of the page is."""
    (found,) = [block.text for block in blocks("docs/ci.md") if block.language == language and name in block.text]
    return found


@pytest.fixture
def machine(pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """In a checkout, with the dump that the cache holds."""
    dump = make_dump(data=DATA)
    digest = hashlib.sha256(dump.read_bytes()).hexdigest()
    (pytester.path / "dump.sha256").write_text(f"{digest}  dump.json\n")
    (pytester.path / "bin").mkdir()
    for name, script in STUBS.items():
        (pytester.path / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (pytester.path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{pytester.path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return Machine(pytester)


class Machine:
    """Runs the commands of a job, pytest in this process: importing torch takes seconds."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self._pytester = pytester

    def run(self, *commands: str, variables: Mapping[str, str] = MappingProxyType({})) -> str:
        """What they print; each must end with 0."""
        printed, waiting = "", [*commands]
        while waiting:
            lines = [Template(line).safe_substitute(variables).strip() for line in waiting]
            at = next((at for at, line in enumerate(lines) if PYTEST.match(line)), len(lines))
            printed += self._shell(lines[:at]) if at else ""
            printed += self._pytest(lines[at]) if at < len(lines) else ""
            waiting = waiting[at + 1 :]
        return printed

    def _pytest(self, line: str) -> str:
        found = PYTEST.match(line)
        assert found is not None
        result = self._pytester.runpytest_inprocess(*shlex.split(found[1].replace("-n 2", "-n 0")))
        assert result.ret == 0, line
        return result.stdout.str()

    def _shell(self, lines: Sequence[str]) -> str:
        environment = {**os.environ, "DUMP_URL": "https://example.com/dump.json"}
        command = ["bash", "-e", "-c", "\n".join(lines)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, f"{lines}\n{done.stdout}{done.stderr}"
        return done.stdout


def updated_then_gated(machine: Machine, update: Sequence[str], gate: Sequence[str]) -> None:
    assert "baseline baseline.jsonl: 3 cases, 3 added" in machine.run(*update)
    assert "gate: 3 as before (baseline.jsonl)" in machine.run(*gate)


def test_the_github_workflow_is_valid_and_its_commands_run(machine: Machine) -> None:
    workflow = yaml.safe_load(page("yaml", "runs-on"))
    assert {*workflow} == {"name", True, "jobs"}  # YAML 1.1 reads `on` as true
    for job in workflow["jobs"].values():
        assert "runs-on" in job
        assert all(step.keys() <= GITHUB_STEP and ("uses" in step) != ("run" in step) for step in job["steps"])
        assert all("@" in step["uses"] for step in job["steps"] if "uses" in step)
        assert any(step.get("with", {}).get("key", "").startswith("dump-") for step in job["steps"])
    machine.run("git init -q . && git add dump.json")
    jobs = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in workflow["jobs"].items()}
    updated_then_gated(machine, jobs["update"], jobs["gate"])
    assert Path("results/results.jsonl").is_file()


def test_the_gitlab_pipeline_is_valid_and_its_commands_run(machine: Machine) -> None:
    pipeline = yaml.safe_load(page("yaml", "stages:"))
    stages = pipeline.pop("stages")
    assert all(job.keys() <= GITLAB_JOB for job in pipeline.values())
    assert {job["stage"] for job in pipeline.values() if "stage" in job} == {*stages}
    shared = pipeline[".dump"]
    assert shared["cache"]["paths"] == ["dump.json"]
    machine.run(*shared["before_script"])
    for name, words in (("update", "3 added"), ("gate", "gate: 3 as before")):
        assert pipeline[name]["extends"] == ".dump"
        for variables in _matrix(pipeline[name]["parallel"]["matrix"]):
            assert words in machine.run(*pipeline[name]["script"], variables=variables)
    machine.run(*pipeline["merged"]["script"])
    assert Path("junit.xml").is_file()
    assert Path("out-bfloat16/summary.md").read_text().startswith("## pytest-probe: nothing failed")


def _matrix(rows: list[dict[str, list[str]]]) -> list[dict[str, str]]:
    return [dict(zip(row, values, strict=True)) for row in rows for values in product(*row.values())]


def test_the_jenkins_pipeline_is_balanced_and_its_commands_run(machine: Machine) -> None:
    text = page("groovy", "pipeline {")
    code = re.sub(r"'[^'\n]*'", "''", text)
    assert all(code.count(left) == code.count(right) for left, right in ("{}", "()"))
    stages = {
        name: re.findall(r"sh '(.*)'", body)
        for name, body in re.findall(r"stage\('(\w+)'\)(.*?)\n    }\n", text, re.DOTALL)
    }
    updated_then_gated(machine, [*stages["Prepare"], *stages["Update"]], stages["Gate"])
    assert Path("junit.xml").is_file()


def action_steps() -> list[dict[str, Any]]:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    assert {*action} == {"name", "description", "inputs", "runs"}
    assert action["runs"]["using"] == "composite"
    asked = {name for step in action["runs"]["steps"] for name in re.findall(r"inputs\.(\w+)", str(step))}
    assert asked == {*action["inputs"]}
    return [step for step in action["runs"]["steps"] if "run" in step]


def run_action(github: Path, **given: str) -> subprocess.CompletedProcess[str]:
    """The action's own commands, as GitHub runs them; all but the last one must end with 0."""
    inputs = {"dump": "", "capture": "", "baseline": "", "args": "", "results": "results", "package": "", **given}
    github.mkdir(exist_ok=True)
    done: list[subprocess.CompletedProcess[str]] = []
    for step in action_steps():
        if "if" in step and not inputs[re.findall(r"inputs\.(\w+) != ''", step["if"])[0]]:
            continue
        assert not done or done[-1].returncode == 0
        own = {name: inputs[re.findall(r"inputs\.(\w+)", value)[0]] for name, value in step["env"].items()}
        of_job = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(github / "summary.md")}
        path = os.pathsep.join((str(Path("bin").absolute()), str(Path(sys.executable).parent), os.environ["PATH"]))
        environment = {**os.environ, **of_job, "GITHUB_WORKSPACE": os.getcwd(), "PATH": path, **own}
        command = ["bash", "-e", "-o", "pipefail", "-c", step["run"]]
        done.append(subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600))
    return done[-1]


@pytest.mark.usefixtures("machine")
def test_the_action_gates_a_dump_and_marks_what_fails(tmp_path: Path) -> None:
    gate = {"dump": "dump.json", "baseline": "baseline.jsonl"}
    assert run_action(tmp_path, **gate, args="-n 2 --probe-baseline-update", package="x").returncode == 0
    Path("conftest.py").write_text(
        "import torch\ndef pytest_probe_register(registry):\n"
        "    registry.calls['Torch.exp'] = lambda x: 1.01 * torch.exp(x)\n"
    )
    done = run_action(tmp_path, **gate, results="again")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "::error file=" in done.stdout
    assert "## pytest-probe: nothing failed" in (tmp_path / "summary.md").read_text()
    assert "## pytest-probe: 1 case failed" in (tmp_path / "summary.md").read_text()
    assert Path("again/junit.xml").is_file()


@pytest.mark.usefixtures("machine")
def test_the_action_records_a_program(tmp_path: Path) -> None:
    Path("train.py").write_text("import torch\nfor _ in range(len(__import__('sys').argv[1])): torch.ones(4).exp()\n")
    done = run_action(tmp_path, capture="train.py 'a b'", args="-k 'exp and\tforward' -q")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 cases, 3 pass" in done.stdout


@pytest.mark.usefixtures("machine")
def test_the_action_refuses_a_quote_that_does_not_end(tmp_path: Path) -> None:
    done = run_action(tmp_path, dump="dump.json", args="-k 'exp")
    assert (done.returncode, done.stdout) == (1, "")
    assert "quote" in done.stderr


def test_the_repositorys_workflow_gives_the_action_inputs_that_it_has() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/precision.yml").read_text(encoding="utf-8"))
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    used = [step for step in workflow["jobs"]["demo"]["steps"] if step.get("uses") == "./"]
    assert used
    for step in used:
        assert step["with"].keys() <= action["inputs"].keys()
        assert (ROOT / step["with"].get("dump", "")).exists()


def test_the_hook_of_pre_commit_refuses_what_a_merge_left(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    program, *command = shlex.split(hook["entry"])
    assert program == "pytest-probe"
    names = ("baseline.jsonl", "ci/baseline-bfloat16.jsonl", "results.jsonl", "my_baseline.jsonl")
    assert [bool(re.search(hook["files"], name)) for name in names] == [True, True, False, False]
    machine.run("pytest --probe-dump=dump.json --probe-baseline=good.jsonl --probe-baseline-update")
    header, first, *rest = Path("good.jsonl").read_text().splitlines(keepends=True)
    capsys.readouterr()
    Path("twice.jsonl").write_text("".join((header, first, first, *rest)))
    Path("marks.jsonl").write_text("".join((header, "<<<<<<< HEAD\n", first, *rest)))
    assert main([*command, "good.jsonl"]) == 0
    assert main([*command, "twice.jsonl", "good.jsonl", "marks.jsonl"]) == 1
    twice, marks = capsys.readouterr().out.splitlines()
    assert "twice.jsonl:3: pytest-probe does not write this: line 2 has the id" in twice
    assert "marks.jsonl:2" in marks
