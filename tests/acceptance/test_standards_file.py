from __future__ import annotations

import csv
import json
import shutil

import pytest

from tests.acceptance.conftest import DumpMaker, Probed
from tests.support.other_plugins import Ran
from tests.support.running import collected, refusal

STRICT = "apis: {linear: {float32: {standard: ulp, mean: 0, over: 0, over_ratio: 0, justification: by contract}}}"


LINEAR = ("--probe-device=cpu", "--probe-api=linear")
RULES = "--probe-standards-file=rules.yaml"


def test_lists_of_msprobe_select(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    (pytester.path / "config.json").write_text(json.dumps({"white_list": ["linear", "relu"], "black_list": ["relu"]}))
    assert collected(pytester, "--probe-dump=dump.json", "--probe-standards-file=config.json") == [
        f"dump.json::Functional.linear.0.{direction}" for direction in ("forward", "backward")
    ]


def test_its_limits_judge_in_results_and_failures_with_its_decimals_and_its_folder_for_tensors(
    pytester: pytest.Pytester, probed: Probed
) -> None:
    (pytester.path / "rules.yaml").write_text(f"{STRICT}\nprecision: 2\nerror_data_path: wrong\n")
    found = probed(*LINEAR, "--probe-standard=msprobe", "--probe-save=all", RULES)
    found.result.assert_outcomes(failed=2)
    found.result.stdout.fnmatch_lines(["*rules of rules.yaml*", "*limits of the project's*"])
    found.result.stdout.fnmatch_lines([f"*pytest * --probe-standard=msprobe {RULES}*"])
    assert {row["outputs"][0]["metrics"]["justification"] for row in found.rows} == {"by contract"}
    assert found.run["settings"]["standards_file"].endswith("rules.yaml")
    assert sorted(path.name for path in (pytester.path / "wrong/saved/dump.json").glob("*.pt")) == [
        f"Functional.linear.0.{direction}.pt" for direction in ("backward", "forward")
    ]
    assert not (pytester.path / "out/saved").exists()
    [details] = (pytester.path / "out").glob("accuracy_checking_details_*.csv")
    with details.open(encoding="utf-8-sig", newline="") as file:
        assert {row["余弦相似度"] for row in csv.DictReader(file)} == {"1.00"}


def test_a_benchmark_leaves_its_rules(pytester: pytest.Pytester, probed: Probed, healthy_run: Ran) -> None:
    """An ini names the file from its own folder."""
    shutil.copytree(healthy_run.folder / "out", pytester.path / "base")
    pytester.makeini("[pytest]\nprobe_standards_file = rules.yaml\nprobe_standard = msprobe")
    (pytester.path / "rules.yaml").write_text(STRICT)
    result = probed(*LINEAR, "--probe-seed=3", "--probe-benchmark=base").result
    result.assert_outcomes(failed=2)
    assert "--probe-standards-file" not in result.stdout.str()
    ratios = "apis: {linear: {float32: {standard: benchmark, justification: not in matrix units}}}"
    (pytester.path / "rules.yaml").write_text(ratios)
    found = probed(*LINEAR, "--probe-seed=3", "--probe-benchmark=base")
    found.result.assert_outcomes(passed=2)
    assert [row["outputs"][0]["metrics"]["benchmark_rmse"] for row in found.rows] == [1, 1]


def test_a_wrong_file_stops_before_anything_is_collected(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    (pytester.path / "rules.yaml").write_text("apis:\n  linear:\n    float23: {}\n")
    said = refusal(pytester, "--probe-dump=dump.json", RULES)
    said.fnmatch_lines(["*rules.yaml:3: apis: linear: unknown key 'float23'; did you mean 'float32'?*"])
