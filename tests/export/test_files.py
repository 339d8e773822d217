"""Files that are made from all results of a run, row by row."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from pytest_probe.export.files import write_files
from pytest_probe.export.measured import MEMORY_TABLE, SUMMARY_TABLE, TIME_TABLE, Beside, memory_of, time_of
from pytest_probe.export.table import Table
from pytest_probe.model.measurement import CaseMemory, CaseTime
from pytest_probe.model.result import Result
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.reports.results_file import RESULTS
from tests.reports.test_times import BESIDE, TIME, result

OUTPUT = OutputVerdict("output.0", (2, 3), "float32", "warning", "noise")


def lines(rows: Iterable[Beside], table: Table = TIME_TABLE) -> list[list[str]]:
    return [*map(table.line, rows)]


def test_rows_of_times() -> None:
    assert lines(time_of(result(None))) == []
    assert lines(time_of(result(CaseTime(reason="raised")))) == []
    row = ["Torch.exp.0", "float32", "[[2, 3], []]", "[[2, 3]]", "forward"]
    assert lines(time_of(result())) == [[*row, "-1", "12.5", ""]]
    beside = msgspec.structs.replace(TIME, beside=BESIDE)
    assert lines(time_of(result(beside))) == [[*row, "10.0", "12.5", "1.25"]]


def test_the_summary_tells_the_verdict_on_the_numbers() -> None:
    found = [
        *time_of(result()),
        *time_of(result(outputs=(OUTPUT,), verdict="warning")),
        *time_of(result(outputs=(OUTPUT,), verdict="error", kind="slower")),
    ]
    assert [SUMMARY_TABLE.line(row)[-1] for row in found] == ["N/A", "warning", "warning"]


def test_rows_of_memory() -> None:
    def found(memory: CaseMemory | None, dtype: str = "") -> list[list[str]]:
        return lines(memory_of(result(memory=memory, dtype=dtype)), MEMORY_TABLE)

    assert found(None) == []
    assert found(CaseMemory(reason="nothing counts")) == []
    assert found(CaseMemory(300)) == [["Torch.exp.0.forward", "-1", "300", ""]]
    assert found(CaseMemory(300, benchmark_bytes=500), "bfloat16") == [
        ["Torch.exp.0.forward*bfloat16", "500", "300", "200"]
    ]


def test_files_of_nothing_are_not_written(tmp_path: Path) -> None:
    def write(*results: Result) -> list[str]:
        (tmp_path / RESULTS).write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in results))
        return [path.name for path in write_files(tmp_path, {"mode": ["time", "mem"], "listen": None, "relations": []})]

    assert write(result(None)) == []
    assert write(result(None, memory=CaseMemory(1))) == ["memory_checking_result.csv"]
    assert write(result(), result(None)) == ["prof_checking_result.csv", "prof_summary.csv"]
    assert (tmp_path / "prof_summary.csv").read_text(encoding="utf-8-sig").splitlines() == [
        "API Name,dtype,input shape,output shape,direction,Bench Time(us),Device Time(us),Device/Bench Time Ratio,"
        "Acc_status",
        'Torch.exp.0,float32,"[[2, 3], []]","[[2, 3]]",forward,-1,12.5,,N/A',
    ]


def test_files_grow_result_by_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The header, and the mark of UTF-8, stand once."""
    monkeypatch.setattr("pytest_probe.export.files._BATCH", 2)
    made = [result(name=f"Torch.exp.{number}.forward") for number in range(5)]
    (tmp_path / RESULTS).write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in made))
    write_files(tmp_path, {"mode": ["acc", "time"], "listen": None, "relations": []})
    for path in tmp_path.glob("*.csv"):
        assert path.read_bytes().count(b"\xef\xbb\xbf") == 1
    found = (tmp_path / "prof_checking_result.csv").read_text(encoding="utf-8-sig").splitlines()
    assert [line.partition(",")[0] for line in found] == ["API Name", *(f"Torch.exp.{number}" for number in range(5))]
    assert not list(tmp_path.glob(".*"))
