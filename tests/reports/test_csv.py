from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_probe.reports.columns import DETAILS
from pytest_probe.reports.csv import read_results, write_csv
from pytest_probe.reports.results import RESULTS

STAMP = "20261121093000"
MEASURES = {"cosine_distance": 0.25, "max_abs_error": 0.5, "rmse": "nan", "ulp_max": 3.0, "binary_mismatch_ratio": 1}


def output(**more: Any) -> dict[str, Any]:
    return {"name": "output.0", "shape": [2, 3], "dtype": "float32", "verdict": "pass", "reason": "", **more}


def outcome(entry: str, verdict: str = "pass", *outputs: Any, label: str = "dump.json", **more: Any) -> dict[str, Any]:
    found = {"id": f"{label}::{entry}", "api": "Torch.add", "verdict": verdict, "reason": "why"}
    return {**found, "outputs": list(outputs), **more}


def written(folder: Path, *outcomes: Any) -> list[Path]:
    (folder / RESULTS).write_bytes(b"".join(msgspec.json.encode(item) + b"\n" for item in outcomes))
    return write_csv(folder, STAMP)


def rows(path: Path) -> list[Sequence[str]]:
    assert path.read_bytes().startswith(b"\xef\xbb\xbf")
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))


def test_details(tmp_path: Path) -> None:
    both = [output(measures=MEASURES), output(dtype="int64", shape=[], measures={"binary_mismatch_ratio": 0.0})]
    written(tmp_path, outcome("Torch.add.0.forward", "error", *both))
    header, first, second = rows(tmp_path / f"accuracy_checking_details_{STAMP}.csv")
    assert tuple(header) == DETAILS
    found = dict(zip(header, first, strict=True))
    assert found["API Name"] == "Torch.add.0.forward.output.0"
    assert (found["Bench Dtype"], found["DEVICE Dtype"], found["Shape"]) == ("torch.float64", "torch.float32", "(2, 3)")
    assert (found["余弦相似度"], found["最大绝对误差"], found["均方根误差"]) == (
        "0.75000000000000",
        "0.50000000000000",
        "nan",
    )
    assert (found["二进制一致错误率"], found["双百指标"]) == ("1", " ")
    assert second[:4] == ["Torch.add.0.forward.output.1", "torch.int64", "torch.int64", "()"]


@pytest.mark.parametrize(("dtype", "bench"), [("bfloat16", "float64"), ("complex64", "complex128"), ("bool", "bool")])
def test_the_dtype_of_the_reference(tmp_path: Path, dtype: str, bench: str) -> None:
    written(tmp_path, outcome("Torch.add.0.forward", "pass", output(dtype=dtype)))
    assert rows(tmp_path / f"accuracy_checking_details_{STAMP}.csv")[1][1:3] == [f"torch.{bench}", f"torch.{dtype}"]


def test_a_row_an_api_call(tmp_path: Path) -> None:
    written(
        tmp_path,
        outcome("Torch.add.0.forward"),
        outcome("Torch.mul.0.forward", "skip"),
        outcome("Torch.add.0.backward", "warning"),
        outcome("Torch.mul.0.backward", "skip", reason="no reference"),
        outcome("Torch.sub.0.forward", "error"),
    )
    assert rows(tmp_path / f"accuracy_checking_result_{STAMP}.csv") == [
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


def test_what_is_no_api_call_is_no_row(tmp_path: Path) -> None:
    assert written(tmp_path, outcome("(damaged)", "error", api="")) == []


def test_a_torn_last_line_is_no_result(tmp_path: Path) -> None:
    written(tmp_path, outcome("Torch.add.0.forward"))
    with (tmp_path / RESULTS).open("ab") as file:
        file.write(b'{"id": "dump.json::Torch')
    assert len(list(read_results(tmp_path / RESULTS))) == 1
