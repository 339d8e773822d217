"""The files of docs/clusters: what schedulers read in them is there, and their commands give one run's results."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance.conftest import NAMES, DumpMaker
from tests.support.pages import ROOT
from tests.support.running import collected

FILES = ROOT / "docs" / "clusters"
SHARDS = 2
# The results of one run, in their order.
WHOLE = [f"dump.json::{name}" for name in NAMES]


# A program notes its command, and leaves the folder of its results.
NOTES = """#!/bin/sh
echo "${0##*/} $*" >> commands
for word in "$@"; do
    case $word in --probe-out=*) mkdir -p "${word#--probe-out=}" ;; esac
done
"""


@pytest.fixture(autouse=True)
def _programs(pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the variables that the files expect to be set."""
    make_dump()
    monkeypatch.setenv("DUMP", "dump.json")
    monkeypatch.setenv("OUT", "results")
    monkeypatch.setenv("PATH", f"{pytester.path}{os.pathsep}{os.environ['PATH']}")
    for name in ("pytest", "pytest-probe"):
        (pytester.path / name).write_text(NOTES)
        (pytester.path / name).chmod(0o755)


def shell(*scripts: tuple[str, Mapping[str, object]]) -> None:
    """Runs these, each with its variables and in a shell of its own."""
    text = ""
    for script, variables in scripts:
        given = " ".join(f"{name}={value}" for name, value in variables.items())
        text += f"env {given} sh -c {shlex.quote(script)} || exit 1\n"
    told = subprocess.run(["bash", "-c", text], capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr


def assert_one_run(pytester: pytest.Pytester, merged: str) -> list[str]:
    """Shards that are run have all cases, and are what is merged into that folder. The words that merge them; what
    merged shards are is in tests/features/test_contract.py."""
    *runs, merge = (shlex.split(line) for line in Path("commands").read_text().splitlines())
    assert [program for program, *_ in runs] == ["pytest"] * SHARDS
    assert sorted(name for _, *args in runs for name in collected(pytester, *args)) == sorted(WHOLE)
    outs = [word.partition("=")[2] for _, *args in runs for word in args if word.startswith("--probe-out=")]
    assert merge[:2] == ["pytest-probe", "merge"]
    assert merge[2 : 2 + SHARDS] == outs
    assert merge[merge.index("-o") + 1] == merged
    return merge


def test_the_slurm_scripts_run_and_merge_shards(pytester: pytest.Pytester) -> None:
    array, merge = ((FILES / f"probe-{name}.sbatch").read_text() for name in ("shards", "merge"))
    asked = dict(line.split()[1].removeprefix("--").split("=") for line in array.splitlines() if line.startswith("#SB"))
    assert asked["array"] == "0-7"
    for script in (array, merge):  # what sbatch reads ends with the first command
        assert all(line.startswith("#") for line in script.partition("set -u")[0].splitlines())
    assert '--probe-shard="$((SLURM_ARRAY_TASK_ID+1))/$SLURM_ARRAY_TASK_COUNT"' in array
    tasks = [(array, {"SLURM_ARRAY_TASK_ID": task, "SLURM_ARRAY_TASK_COUNT": SHARDS}) for task in range(SHARDS)]
    shell(*tasks, (merge, {}))
    assert "--junit=results/junit.xml" in assert_one_run(pytester, "results/merged")


def test_the_kubernetes_job_runs_and_merges_shards(pytester: pytest.Pytester) -> None:
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
    (script,) = container["args"]
    pods = [(script, {"SHARDS": SHARDS, "JOB_COMPLETION_INDEX": index}) for index in range(SHARDS)]
    shell(*pods, ("pytest-probe merge results/shard-* -o merged", {}))
    assert_one_run(pytester, "merged")


def test_the_gitlab_jobs_run_and_merge_shards(pytester: pytest.Pytester) -> None:
    jobs = yaml.safe_load((FILES / "gitlab.yml").read_text())
    probe, merge = jobs["probe"], jobs["probe-merge"]
    assert isinstance(probe["parallel"], int)
    assert merge["needs"] == ["probe"]
    assert merge["artifacts"]["reports"] == {"junit": "junit.xml"}
    script = "\n".join(probe["script"])
    nodes = [(script, {"CI_NODE_INDEX": index, "CI_NODE_TOTAL": SHARDS}) for index in range(1, SHARDS + 1)]
    shell(*nodes, ("\n".join(merge["script"]), {}))
    assert_one_run(pytester, "merged")
    assert sorted(map(str, Path().glob(probe["artifacts"]["paths"][0]))) == ["shard-1", "shard-2"]
