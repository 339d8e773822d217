from __future__ import annotations

import csv
import json

import pytest

from tests.acceptance.conftest import DumpMaker
from tests.support.running import refusal

STRICT = "apis: {linear: {float32: {standard: ulp, mean: 0, over: 0, over_ratio: 0, justification: by contract}}}"


def test_lists_of_msprobe_select(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    (pytester.path / "config.json").write_text(json.dumps({"white_list": ["linear", "relu"], "black_list": ["relu"]}))
    result = pytester.runpytest("--probe-dump=dump.json", "--probe-standards-file=config.json", "--collect-only", "-q")
    lines = [line for line in result.outlines if "::" in line]
    assert lines == [f"dump.json::Functional.linear.0.{direction}" for direction in ("forward", "backward")]


def test_its_limits_judge_in_results_and_failures(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    (pytester.path / "rules.yaml").write_text(STRICT)
    args = ["--probe-dump=dump.json", "--probe-device=cpu", "--probe-standard=msprobe", "--probe-api=linear"]
    result = pytester.runpytest(*args, "--probe-standards-file=rules.yaml", "--probe-out=out")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*rules of rules.yaml*", "*limits of the project's*"])
    result.stdout.fnmatch_lines(["*pytest * --probe-standard=msprobe --probe-standards-file=rules.yaml*"])
    for line in (pytester.path / "out" / "results.jsonl").read_text().splitlines():
        assert json.loads(line)["outputs"][0]["metrics"]["justification"] == "by contract"
    assert json.loads((pytester.path / "out" / "run.json").read_text())["settings"]["standards_file"].endswith(
        "rules.yaml"
    )


def test_a_benchmark_leaves_its_rules(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    (pytester.path / "rules.yaml").write_text(STRICT)
    args = ["--probe-dump=dump.json", "--probe-device=cpu", "--probe-standard=msprobe", "--probe-api=linear"]
    pytester.runpytest(*args, "--probe-out=base").assert_outcomes(passed=2)
    pytester.runpytest(*args, "--probe-benchmark=base", "--probe-standards-file=rules.yaml").assert_outcomes(failed=2)
    ratios = "apis: {linear: {float32: {standard: benchmark, justification: not in matrix units}}}"
    (pytester.path / "rules.yaml").write_text(ratios)
    both = ("--probe-benchmark=base", "--probe-standards-file=rules.yaml", "--probe-out=out")
    pytester.runpytest(*args, *both).assert_outcomes(passed=2)
    for line in (pytester.path / "out" / "results.jsonl").read_text().splitlines():
        assert json.loads(line)["outputs"][0]["metrics"]["benchmark_rmse"] == 1


def test_an_ini_names_it_from_its_own_folder(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    (pytester.path / "rules.yaml").write_text(STRICT)
    pytester.makeini("[pytest]\nprobe_standards_file = rules.yaml\nprobe_standard = msprobe")
    result = pytester.runpytest("--probe-dump=dump.json", "--probe-device=cpu", "--probe-api=linear")
    result.assert_outcomes(failed=2)
    assert "--probe-standards-file" not in result.stdout.str()


def test_a_wrong_file_stops_before_anything_is_collected(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    (pytester.path / "rules.yaml").write_text("apis:\n  linear:\n    float23: {}\n")
    said = refusal(pytester, "--probe-dump=dump.json", "--probe-standards-file=rules.yaml")
    said.fnmatch_lines(["*rules.yaml:3: apis: linear: unknown key 'float23'; did you mean 'float32'?*"])


def test_its_decimals_and_its_folder_for_tensors(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    (pytester.path / "config.json").write_text(json.dumps({"precision": 2, "error_data_path": "wrong"}))
    args = ["--probe-dump=dump.json", "--probe-device=cpu", "--probe-api=linear", "--probe-direction=forward"]
    both = ("--probe-out=out", "--probe-save=all", "--probe-standards-file=config.json")
    pytester.runpytest(*args, *both).assert_outcomes(passed=1)
    assert [path.name for path in (pytester.path / "wrong/saved/dump.json").glob("*.pt")] == [
        "Functional.linear.0.forward.pt"
    ]
    assert not (pytester.path / "out/saved").exists()
    [details] = (pytester.path / "out").glob("accuracy_checking_details_*.csv")
    with details.open(encoding="utf-8-sig", newline="") as file:
        [row] = csv.DictReader(file)
    assert row["余弦相似度"] == "1.00"
