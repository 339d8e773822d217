"""The files of docs/clusters: what schedulers read in them is there, and their commands give one run's results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance.conftest import NAMES, DumpMaker
from tests.support.pages import ROOT

FILES = ROOT / "docs" / "clusters"
SHARDS = 2
# The results of one run, in their order.
WHOLE = [f"dump.json::{name}" for name in NAMES]


@pytest.fixture
def runs(pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables that the files expect to be set."""
    make_dump()
    monkeypatch.setenv("DUMP", "dump.json")
    monkeypatch.setenv("OUT", "results")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:randomly --probe-device=cpu")


def shell(script: str, **variables: object) -> None:
    environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
    told = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr


def ids(folder: str) -> list[str]:
    return [json.loads(line)["id"] for line in Path(folder, "results.jsonl").read_text().splitlines()]


def names(junit: str) -> list[str]:
    return [part.partition('name="')[2].partition('"')[0] for part in Path(junit).read_text().split("<testcase ")[1:]]


@pytest.mark.usefixtures("runs")
def test_the_slurm_scripts_run_and_merge_shards() -> None:
    array, merge = ((FILES / f"probe-{name}.sbatch").read_text() for name in ("shards", "merge"))
    asked = dict(line.split()[1].removeprefix("--").split("=") for line in array.splitlines() if line.startswith("#SB"))
    assert asked["array"] == "0-7"
    for script in (array, merge):  # what sbatch reads ends with the first command
        assert all(line.startswith("#") for line in script.partition("set -u")[0].splitlines())
    assert '--probe-shard="$((SLURM_ARRAY_TASK_ID+1))/$SLURM_ARRAY_TASK_COUNT"' in array
    for task in range(SHARDS):
        shell(array, SLURM_ARRAY_TASK_ID=task, SLURM_ARRAY_TASK_COUNT=SHARDS)
    shell(merge)
    assert ids("results/merged") == WHOLE
    assert len(names("results/junit.xml")) == len(WHOLE)


@pytest.mark.usefixtures("runs")
def test_the_kubernetes_job_runs_and_merges_shards() -> None:
    job = yaml.safe_load((FILES / "kubernetes.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    spec = job["spec"]
    assert spec["completionMode"] == "Indexed"
    pod = spec["template"]["spec"]
    # What the API server asks of a Job, and of an index that fails.
    assert pod["restartPolicy"] == "Never"
    (container,) = pod["containers"]
    given: dict[str, Any] = {each["name"]: each["value"] for each in container["env"]}
    assert int(given["SHARDS"]) == spec["completions"] == spec["parallelism"]
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
    assert container["command"] == ["sh", "-c"]
    for index in range(SHARDS):
        shell(container["args"][0], SHARDS=SHARDS, JOB_COMPLETION_INDEX=index)
    shell("pytest-probe merge results/shard-* -o merged")
    assert ids("merged") == WHOLE


@pytest.mark.usefixtures("runs")
def test_the_gitlab_jobs_run_and_merge_shards() -> None:
    jobs = yaml.safe_load((FILES / "gitlab.yml").read_text())
    probe, merge = jobs["probe"], jobs["probe-merge"]
    assert isinstance(probe["parallel"], int)
    assert merge["needs"] == ["probe"]
    assert merge["artifacts"]["reports"] == {"junit": "junit.xml"}
    for index in range(1, SHARDS + 1):
        shell("\n".join(probe["script"]), CI_NODE_INDEX=index, CI_NODE_TOTAL=SHARDS)
    shell("\n".join(merge["script"]))
    assert ids("merged") == WHOLE
    assert sorted(map(str, Path().glob(probe["artifacts"]["paths"][0]))) == ["shard-1", "shard-2"]
