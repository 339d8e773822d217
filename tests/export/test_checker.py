from __future__ import annotations

import csv
import os
import resource
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_probe.export.details import DECIMALS, DETAILS, MEASURED, OF_RULE
from pytest_probe.export.files import write_files
from pytest_probe.reports.results_file import RESULTS

MEASURES = {"cosine_distance": 0.25, "max_abs_error": 0.5, "rmse": "nan", "ulp_max": 3.0, "binary_mismatch_ratio": 1}


def output(**more: Any) -> dict[str, Any]:
    texts = {"name": "output.0", "dtype": "float32", "verdict": "pass", "standard": "noise", "reason": ""}
    return {**texts, "shape": [2, 3], "metrics": {}, "worst": [], **more}


def outcome(entry: str, verdict: str = "pass", *outputs: Any, label: str = "dump.json", **more: Any) -> dict[str, Any]:
    names = {"id": f"{label}::{entry}", "api": "Torch.add", "direction": "", "dtype": "", "device": "cpu"}
    said = {"standard": "auto", "verdict": verdict, "reason": "why", "kind": "", "duration": 0.0, "notes": []}
    return {**names, **said, "outputs": list(outputs), **more}


def written(folder: Path, *outcomes: Any, decimals: int = DECIMALS) -> list[Path]:
    """The files of the checker."""
    (folder / RESULTS).write_bytes(b"".join(msgspec.json.encode(item) + b"\n" for item in outcomes))
    made = write_files(folder, {"mode": ["acc"], "listen": None, "relations": []}, decimals)
    return [path for path in made if path.name.startswith("accuracy_checking")]


def details(folder: Path) -> list[Sequence[str]]:
    (path,) = folder.glob("accuracy_checking_details_*.csv")
    return rows(path)


def results(folder: Path) -> list[Sequence[str]]:
    (path,) = folder.glob("accuracy_checking_result_*.csv")
    return rows(path)


def rows(path: Path) -> list[Sequence[str]]:
    assert path.read_bytes().startswith(b"\xef\xbb\xbf")
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize("decimals", [DECIMALS, 3])
def test_details_have_the_columns_of_the_checker(tmp_path: Path, decimals: int) -> None:
    """With as many decimals as are asked for."""
    both = [output(measures=MEASURES), output(dtype="int64", shape=[], measures={"binary_mismatch_ratio": 0.0})]
    written(tmp_path, outcome("Torch.add.0.forward", "error", *both), decimals=decimals)
    header, first, second = details(tmp_path)
    assert header == [column.header for column in DETAILS]
    found = dict(zip(header, first, strict=True))
    assert found["API Name"] == "Torch.add.0.forward.output.0"
    assert (found["Bench Dtype"], found["DEVICE Dtype"], found["Shape"]) == ("torch.float64", "torch.float32", "(2, 3)")
    numbers = [f"{number:.{decimals}f}" for number in (0.75, 0.5)]
    assert [found[name] for name in ("余弦相似度", "最大绝对误差", "均方根误差")] == [*numbers, "nan"]
    assert (found["二进制一致错误率"], found["双百指标"]) == (" ", " ")
    assert second[9] == f"{0:.{decimals}f}"
    assert second[:4] == ["Torch.add.0.forward.output.1", "torch.int64", "torch.int64", "()"]


@pytest.mark.parametrize(("dtype", "bench"), [("bfloat16", "float64"), ("complex64", "complex128"), ("bool", "bool")])
def test_the_dtype_of_the_reference(tmp_path: Path, dtype: str, bench: str) -> None:
    written(tmp_path, outcome("Torch.add.0.forward", "pass", output(dtype=dtype)))
    assert details(tmp_path)[1][1:3] == [f"torch.{bench}", f"torch.{dtype}"]


def test_checker_results_have_a_row_for_each_call(tmp_path: Path) -> None:
    written(
        tmp_path,
        outcome("Torch.add.0.forward"),
        outcome("Torch.mul.0.forward", "skip"),
        outcome("Torch.add.0.backward", "warning"),
        outcome("Torch.mul.0.backward", "skip", reason="no reference"),
        outcome("Torch.sub.0.forward", "error"),
    )
    assert results(tmp_path) == [
        ["API name", "Forward Test Success", "Backward Test Success", "Message"],
        ["Torch.add.0", "pass", "warning"],
        ["Torch.mul.0", "SKIP", "SKIP", "no reference"],
        ["Torch.sub.0", "error", " "],
    ]


def test_a_folder_for_each_dump_and_dtype(tmp_path: Path) -> None:
    made = written(
        tmp_path,
        outcome("Torch.add.0.forward", label="rank0/dump.json"),
        outcome("Torch.add.0.forward[bfloat16]", label="rank0/dump.json"),
        outcome("Torch.add.0.forward", label="../dump.json"),
    )
    folders = {path.parent.relative_to(tmp_path).as_posix() for path in made}
    assert folders == {"rank0/dump.json", "rank0/dump.json/bfloat16", "_/dump.json"}
    assert all(len(rows(path)) == 2 for path in made if "result" in path.name)
    assert not list(tmp_path.rglob(".*"))


def test_more_dumps_than_a_process_may_open_files(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    entries = [outcome(f"Torch.add.{turn}.forward", label=f"{name}/dump.json") for turn in (0, 1) for name in range(30)]
    with tempfile.TemporaryFile():
        last = max(int(name) for name in os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (last + 10, hard))
        try:
            made = written(tmp_path, *entries)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    found = [rows(path) for path in made if "result" in path.name]
    assert [[row[0] for row in table[1:]] for table in found] == [["Torch.add.0", "Torch.add.1"]] * 30


def test_parameters_of_a_test_are_no_dtype(tmp_path: Path) -> None:
    tests = (outcome(f"test_gelu[{size}]::my_gelu.0.forward", label="test_kernels.py") for size in (64, 65))
    made = written(tmp_path, *tests, outcome("test_x[64]::Torch.add.0.forward[bfloat16]", label="test_kernels.py"))
    below = [path.relative_to(tmp_path).parent.as_posix() for path in made]
    assert below == ["test_kernels.py"] * 2 + ["test_kernels.py/bfloat16"] * 2
    assert [row[0] for row in rows(made[0])[1:]] == ["test_gelu[64]::my_gelu.0", "test_gelu[65]::my_gelu.0"]
    assert [row[0] for row in rows(made[2])[1:]] == ["test_x[64]::Torch.add.0"]


def test_what_is_no_api_call_is_no_row(tmp_path: Path) -> None:
    assert written(tmp_path, outcome("(damaged)", "error", api="")) == []


@pytest.mark.parametrize(
    ("api", "standard", "filled"),
    [
        ("Torch.add", "auto", {"inf/nan错误率", "相对误差错误率", "绝对误差错误率"}),
        ("Functional.linear", "msprobe", {"ULP误差最大值", "ULP误差平均值", "ULP误差大于阈值占比"}),
        ("Functional.relu", "noise", {"二进制一致错误率"}),
        ("Functional.softmax", "auto", set()),
        ("Torch.add", "msprobe-26", set()),
        ("Torch.histc", "msprobe-8", {"二进制一致错误率"}),
        ("Torch.histc", "msprobe-1.0", set()),
        ("Torch.test_api", "msprobe-8", {"inf/nan错误率", "相对误差错误率", "绝对误差错误率"}),
    ],
)
def test_only_the_columns_of_the_rule_are_filled(tmp_path: Path, api: str, standard: str, filled: set[str]) -> None:
    measures = dict.fromkeys(MEASURED.values(), 0.5)
    written(tmp_path, outcome(f"{api}.0.forward", "pass", output(measures=measures), api=api, standard=standard))
    header, row = details(tmp_path)
    of_rules = {column for columns in OF_RULE.values() for column in columns}
    found = dict(zip(header, row, strict=True))
    assert {column for column in of_rules if found[column].strip()} == filled
    assert all(found[column].strip() for column in set(MEASURED) - of_rules)


FAR = {"cosine_distance": 0.5, "max_abs_error": 0.25, "max_rel_error": 1.5}
NEAR = {"cosine_distance": 0.0, "max_abs_error": 0.0, "max_rel_error": 0.0}
COSINE, LARGEST = (
    "cosine similarity is less than threshold: 0.99 ",
    "max absolute difference is greater than threshold: 0.001 ",
)


def test_rows_of_mindspores_checker(tmp_path: Path) -> None:
    mindspore = {"standard": "mindspore"}
    added = {"api": "Mint.add", **mindspore}
    written(
        tmp_path,
        outcome("Mint.add.0.forward", "error", output(measures=FAR, verdict="error"), **added),
        outcome("Mint.add.0.backward", "pass", output(measures=NEAR, dtype="bfloat16", shape=[3]), **added),
        outcome("Tensor.__add__.0.forward", "pass", output(measures=NEAR), api="Tensor.__add__", **mindspore),
        outcome("Tensor.max.0.forward", "skip", api="Tensor.max", **mindspore),
    )
    header = "API Name,Bench Dtype,Tested Dtype,Shape,Cosine,MaxAbsErr,MaxRelativeErr,Status,Message"
    far = ["Float32", "Float32", "(2, 3)", "0.5", "0.25", "1.5", "error", COSINE + LARGEST]
    near = ["BFloat16", "BFloat16", "(3,)", "1.0", "0.0", "0.0", "pass", ""]
    assert details(tmp_path) == [
        header.split(","), ["Mint.add.0.forward.output.0", *far], ["Mint.add.0.backward.output.0", *near]
    ]  # fmt: skip
    assert results(tmp_path) == [
        ["API Name", "Forward Test Success", "Backward Test Success", "Message"],
        ["Mint.add.0", "error", "pass", COSINE + LARGEST],
        ["Tensor.max.0", "SKIP", "", "why"],
    ]


def test_what_has_no_metrics_in_mindspores_columns_is_said(tmp_path: Path) -> None:
    given = {"api": "Tensor.item", "standard": "mindspore"}
    written(tmp_path, outcome("Tensor.item.0.forward", "error", output(verdict="error", shape=[]), **given))
    (_, row) = details(tmp_path)
    assert row[4:] == [
        *("", "", "", "error"),
        "two inputs are not valid for computing cosine similarity, skip comparing "
        "two inputs are not valid for computing max absolute difference, skip comparing ",
    ]
