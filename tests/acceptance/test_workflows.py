"""The workflows of docs/ci.md: they are what their CI takes, and their commands do what the page says."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
from itertools import product
from pathlib import Path
from string import Template
from typing import Any

import pytest
import yaml

from pytest_probe.cli import main
from pytest_probe.features.gate.baseline import write
from pytest_probe.settings import Settings, parse
from tests.acceptance.conftest import DumpMaker
from tests.features.gate.test_baseline import HEADER, cases
from tests.support.pages import ROOT, blocks

# What a CI machine has and a test has not: installed packages, a network. A program of ours notes its command, and
# leaves what commands behind it look for.
NOTES = """
(IFS='|'; echo "${0##*/}|$*" >> commands)
for word in "$@"; do
    case $word in
        --probe-out=*) mkdir -p "${word#*=}" ;;
        --junitxml=*) mkdir -p "$(dirname "${word#*=}")" && touch "${word#*=}" ;;
    esac
done
exit ${STATUS:-0}
"""
STUBS = {
    "pytest": NOTES,
    "pytest-probe": NOTES,
    "pip": "exit 0",
    "curl": "exit 1",
    "junitparser": 'set -- $4 "$5"; test -f junit-recorded.xml && test -f junit-bfloat16.xml && touch junit.xml',
    "python3": 'mkdir -p .venv/bin && ln -sf "$(which pip)" "$(which pytest)" .venv/bin/',
}
GITHUB_STEP = {"uses", "run", "with", "env", "if"}
GITLAB_JOB = {"image", "cache", "before_script", "extends", "stage", "parallel", "script", "artifacts", "when"}


def page(language: str, name: str) -> str:
    """The workflow file that a block of the page is."""
    (found,) = [block.text for block in blocks("docs/ci.md") if block.language == language and name in block.text]
    return found


@pytest.fixture
def machine(pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout, with the dump that the cache holds."""
    dump = make_dump()
    digest = hashlib.sha256(dump.read_bytes()).hexdigest()
    (pytester.path / "dump.sha256").write_text(f"{digest}  dump.json\n")
    (pytester.path / "bin").mkdir()
    for name, script in STUBS.items():
        (pytester.path / "bin" / name).write_text(f"#!/bin/bash\n{script}\n")
        (pytester.path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{pytester.path / 'bin'}{os.pathsep}{os.environ['PATH']}")


def noted() -> list[list[str]]:
    """The commands of ours that a shell came to, in words."""
    file = Path("commands")
    found = [line.split("|") for line in file.read_text().splitlines()]
    file.unlink()
    return found


def asked_by(pytester: pytest.Pytester, *commands: str) -> list[Settings]:
    """What each run of pytest asks for that these commands come to; each of them must end with 0."""
    environment = {**os.environ, "DUMP_URL": "https://example.com/dump.json"}
    command = ["bash", "-e", "-c", "\n".join(commands)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"
    runs = [" ".join(words).split() for words in noted()]
    assert {program for program, *_ in runs} == {"pytest"}
    return [parse(pytester.parseconfig(*args), paths_given=False) for _, *args in runs]


def assert_updated_then_gated(runs: list[Settings], name: str = "baseline.jsonl") -> None:
    """What an update writes, and a gate finds, is in tests/features/gate."""
    assert [(run.baseline, run.update) for run in runs] == [(Path(name).resolve(), True), (Path(name).resolve(), False)]
    assert {run.dump_files for run in runs} == {(Path("dump.json").resolve(),)}


@pytest.mark.usefixtures("machine")
def test_the_github_workflow_is_valid_and_its_commands_run(pytester: pytest.Pytester) -> None:
    workflow = yaml.safe_load(page("yaml", "runs-on"))
    assert {*workflow} == {"name", True, "jobs"}  # YAML 1.1 reads `on` as true
    for job in workflow["jobs"].values():
        assert "runs-on" in job
        assert all(step.keys() <= GITHUB_STEP and ("uses" in step) != ("run" in step) for step in job["steps"])
        assert all("@" in step["uses"] for step in job["steps"] if "uses" in step)
        assert any(step.get("with", {}).get("key", "").startswith("dump-") for step in job["steps"])
    jobs = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in workflow["jobs"].items()}
    runs = asked_by(pytester, "git init -q . && git add dump.json", *jobs["update"], *jobs["gate"])
    assert_updated_then_gated(runs)
    assert runs[1].out == Path("results").resolve()


@pytest.mark.usefixtures("machine")
def test_the_gitlab_pipeline_is_valid_and_its_commands_run(pytester: pytest.Pytester) -> None:
    pipeline = yaml.safe_load(page("yaml", "stages:"))
    stages = pipeline.pop("stages")
    assert all(job.keys() <= GITLAB_JOB for job in pipeline.values())
    assert {job["stage"] for job in pipeline.values() if "stage" in job} == {*stages}
    shared = pipeline[".dump"]
    assert shared["cache"]["paths"] == ["dump.json"]
    commands = [*shared["before_script"]]
    for name in ("update", "gate"):
        assert pipeline[name]["extends"] == ".dump"
        for variables in _matrix(pipeline[name]["parallel"]["matrix"]):
            commands += [Template(line).safe_substitute(variables) for line in pipeline[name]["script"]]
    runs = asked_by(pytester, *commands, *pipeline["merged"]["script"])
    for place, dtype in enumerate(("recorded", "bfloat16")):
        update, gate = runs[place::2]
        assert_updated_then_gated([update, gate], f"baseline-{dtype}.jsonl")
        assert (update.dtypes, gate.dtypes, gate.out) == ((dtype,), (dtype,), Path(f"out-{dtype}").resolve())
    assert Path("junit.xml").is_file()


def _matrix(rows: list[dict[str, list[str]]]) -> list[dict[str, str]]:
    return [dict(zip(row, values, strict=True)) for row in rows for values in product(*row.values())]


@pytest.mark.usefixtures("machine")
def test_the_jenkins_pipeline_is_balanced_and_its_commands_run(pytester: pytest.Pytester) -> None:
    text = page("groovy", "pipeline {")
    code = re.sub(r"'[^'\n]*'", "''", text)
    assert all(code.count(left) == code.count(right) for left, right in ("{}", "()"))
    stages = {
        name: re.findall(r"sh '(.*)'", body)
        for name, body in re.findall(r"stage\('(\w+)'\)(.*?)\n    }\n", text, re.DOTALL)
    }
    assert_updated_then_gated(asked_by(pytester, *stages["Prepare"], *stages["Update"], *stages["Gate"]))
    assert Path("junit.xml").is_file()


def action_steps() -> list[dict[str, Any]]:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    assert {*action} == {"name", "description", "inputs", "runs"}
    assert action["runs"]["using"] == "composite"
    asked = {name for step in action["runs"]["steps"] for name in re.findall(r"inputs\.(\w+)", str(step))}
    assert asked == {*action["inputs"]}
    return [step for step in action["runs"]["steps"] if "run" in step]


def run_action(status: int = 0, **given: str) -> subprocess.CompletedProcess[str]:
    """The action's own commands, as GitHub runs them until one fails; pytest ends with this status."""
    inputs = {"dump": "", "capture": "", "baseline": "", "args": "", "results": "results", "package": "", **given}
    steps = []
    for step in action_steps():
        if "if" in step and not inputs[re.findall(r"inputs\.(\w+) != ''", step["if"])[0]]:
            continue
        own = {name: inputs[re.findall(r"inputs\.(\w+)", value)[0]] for name, value in step["env"].items()}
        variables = shlex.join(f"{name}={value}" for name, value in own.items())
        steps.append(f"env {variables} bash -e -o pipefail -c {shlex.quote(step['run'])}")
    environment = {**os.environ, "STATUS": str(status)}
    command = ["bash", "-c", " && ".join(steps)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)


RESULTS = ["--probe-out=results", "--junitxml=results/junit.xml", "--probe-save=failing"]


@pytest.mark.usefixtures("machine")
def test_the_action_gates_a_dump() -> None:
    """What fails is marked, and in the summary: tests/features/markdown/test_ci.py."""
    gate = {"dump": "dump.json", "baseline": "baseline.jsonl"}
    assert run_action(status=1, **gate, args="-n 2 --probe-baseline-update", package="x").returncode == 1
    dump = ["--probe-dump=dump.json", "--probe-baseline=baseline.jsonl"]
    assert noted() == [["pytest", *dump, *RESULTS, "-n", "2", "--probe-baseline-update"]]


@pytest.mark.usefixtures("machine")
def test_the_action_records_a_program() -> None:
    assert run_action(capture="train.py 'a b'", args="-k 'exp and\tforward' -q").returncode == 0
    assert noted() == [
        ["pytest-probe", "capture", "--out=probe-dump", "train.py", "a b"],
        ["pytest", "--probe-dump=probe-dump", *RESULTS, "-k", "exp and\tforward", "-q"],
    ]


@pytest.mark.usefixtures("machine")
def test_the_action_refuses_a_quote_that_does_not_end() -> None:
    done = run_action(dump="dump.json", args="-k 'exp")
    assert (done.returncode, done.stdout) == (1, "")
    assert "quote" in done.stderr
    assert not Path("commands").exists()


def test_the_repositorys_workflow_gives_the_action_inputs_that_it_has() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/precision.yml").read_text(encoding="utf-8"))
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    used = [step for step in workflow["jobs"]["demo"]["steps"] if step.get("uses") == "./"]
    assert used
    for step in used:
        assert step["with"].keys() <= action["inputs"].keys()
        assert (ROOT / step["with"].get("dump", "")).exists()


@pytest.mark.usefixtures("pytester")
def test_the_hook_of_pre_commit_refuses_what_a_merge_left(capsys: pytest.CaptureFixture[str]) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    program, *command = shlex.split(hook["entry"])
    assert program == "pytest-probe"
    names = ("baseline.jsonl", "ci/baseline-bfloat16.jsonl", "results.jsonl", "my_baseline.jsonl")
    assert [bool(re.search(hook["files"], name)) for name in names] == [True, True, False, False]
    write(Path("good.jsonl"), HEADER, cases("exp", "sin"), whole=True)
    header, first, *rest = Path("good.jsonl").read_text().splitlines(keepends=True)
    Path("twice.jsonl").write_text("".join((header, first, first, *rest)))
    Path("marks.jsonl").write_text("".join((header, "<<<<<<< HEAD\n", first, *rest)))
    assert main([*command, "good.jsonl"]) == 0
    assert main([*command, "twice.jsonl", "good.jsonl", "marks.jsonl"]) == 1
    twice, marks = capsys.readouterr().out.splitlines()
    assert "twice.jsonl:3: pytest-probe does not write this: line 2 has the id" in twice
    assert "marks.jsonl:2" in marks
