"""`pytest-probe compare --standard=paddleapex`: two details files of PaddleAPEX, as its acc_multi_cmp.py has them."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_probe.cli import main
from tests.support.csv_cells import lines, unlike
from tests.support.paddle_dumps import unpack_outputs

TOOL, DOCUMENTED = "paddleapex", "paddleapex-documented"
RATIOS, BINARY = "标杆比对法", "二进制一致法"
FILES = [f"compare_bench_vs_{side}_bf16/accuracy_checking_details.csv" for side in ("device", "bench")]


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_outputs(tmp_path_factory.mktemp("outputs"))


def compare(device: Path, benchmark: Path, out: Path, standard: str = "paddleapex") -> int:
    return main(["compare", str(device), str(benchmark), "-o", str(out), f"--standard={standard}"])


def test_the_tools_own_files_cell_by_cell(gpt: Path, tmp_path: Path) -> None:
    assert compare(gpt / FILES[0], gpt / FILES[1], tmp_path) == 1
    for kind in ("details", "result"):
        name = f"api_precision_compare_{kind}"
        mine, theirs = lines(tmp_path, name), lines(gpt / "compare_multi", name)
        assert len(theirs) > 38
        # The tool has no row of a call without a dtype.
        known = {line[0] for line in theirs}
        assert [
            line for line in mine if line[0] not in known and line[-1] != "bench and device output type is different."
        ] == []
        assert [line[0].partition(".forward")[0] for line in mine if line[0] not in known] == ["paddle.sqrt*0"]
        assert list(unlike([line for line in mine if line[0] in known], theirs)) == []
    with next(tmp_path.glob("*details*")).open("rb") as file:
        assert file.read(3) == b"\xef\xbb\xbf"
    assert len(lines(tmp_path, "api_precision_compare_details")[0]) == 25


COLUMNS = (
    "API Name,Bench Dtype,DEVICE Dtype,Shape,余弦相似度,最大绝对误差,双百指标,双千指标,双万指标,二进制一致错误率,"
    "误差均衡性,均方根误差,小值域错误占比,相对误差最大值,相对误差平均值,inf/nan错误率,相对误差错误率,绝对误差错误率,Status,Message"
).split(",")
FLOATS = {
    "DEVICE Dtype": "paddle.float32", "Shape": "(4,)", "双百指标": "1.0", "双千指标": "0.75", "双万指标": "1.0",
    "误差均衡性": "0.1", "均方根误差": "1e-6", "小值域错误占比": "0", "相对误差最大值": "1e-6",
    "相对误差平均值": "1e-6", "Status": "pass",
}  # fmt: skip


def written(folder: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    folder.mkdir()
    path = folder / "accuracy_checking_details_1.csv"
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval=" ")
        writer.writeheader()
        writer.writerows(rows)
    return path


def statuses(
    tmp_path: Path, device: Sequence[Mapping[str, Any]], benchmark: Sequence[Mapping[str, Any]], standard: str
) -> tuple[list[str], list[str]]:
    """Of the outputs, with the method, and of the calls."""
    compare(
        written(tmp_path / "device", device), written(tmp_path / "benchmark", benchmark), tmp_path / "out", standard
    )
    header, *details = lines(tmp_path / "out", "api_precision_compare_details")
    places = [header.index(name) for name in ("比对结果", "比对算法")]
    return [" ".join(line[at] for at in places).strip() for line in details], [
        "/".join(line[1:3]) for line in lines(tmp_path / "out", "api_precision_compare_result")[1:]
    ]


def row(name: str, **cells: Any) -> dict[str, Any]:
    return {**FLOATS, "API Name": f"{name}.forward.output.0", **cells}


BLANK = {name: " " for name in FLOATS if name not in ("DEVICE Dtype", "Shape")}
UNKNOWN = "small_value_error_ratio is unknown, the benchmark's 0, which the tool counts as 10000 times, limit 2"
# Cells of the device's row and of the benchmark's, the output's status, and its message or another cell.
JUDGED: dict[str, tuple[dict[str, str], dict[str, str], str, str, str]] = {
    "blank cells are ratios of 10000": (BLANK, {}, "error", "Message", f"benchmark: {UNKNOWN}"),
    "and so are the benchmark's": ({}, dict.fromkeys(FLOATS, " "), "error", "比对算法", RATIOS),
    "a message says what was divided": (
        {"均方根误差": "0.02"}, {"均方根误差": "2e-6"}, "error", "Message",
        "benchmark: rmse is 1e+04 times the benchmark's, limit 2",
    ),
    "shares of what is not near are divided": (
        {"双千指标": "0.5"}, {}, "pass", "双千错误率比值(Device/Bench)", "2.0",
    ),
    "equal shares are not": ({"双千指标": "0.5"}, {}, "pass", "双百错误率比值(Device/Bench)", "equal, delta<1e-6"),
}  # fmt: skip


@pytest.mark.parametrize("case", JUDGED)
def test_an_output_is_judged_as_by_the_tool(tmp_path: Path, case: str) -> None:
    device, benchmark, status, column, cell = JUDGED[case]
    found, _ = statuses(tmp_path, [row("paddle.exp*0", **device)], [row("paddle.exp*0", **benchmark)], TOOL)
    assert found == [f"{status} {RATIOS}"]
    header, line = lines(tmp_path / "out", "api_precision_compare_details")
    assert dict(zip(header, line, strict=True))[column] == cell


NUMBER = {**dict.fromkeys(FLOATS, " "), "DEVICE Dtype": "<class 'int'>", "Status": "error"}


@pytest.mark.parametrize(
    ("standard", "relu", "number"),
    [(TOOL, f"pass {RATIOS}", "SKIP"), (DOCUMENTED, f"error {BINARY}", f"error {BINARY}")],
)
def test_what_the_tool_and_its_documents_make_of_lists_and_numbers(
    tmp_path: Path, standard: str, relu: str, number: str
) -> None:
    """The lists choose the method where names are found. At numbers that differ, which have no share, the tool ends,
    and has none of the calls behind them."""
    rows = [row("paddle.nn.functional.relu*0", **{"二进制一致错误率": "0.5"}), row("paddle.Tensor.__len__*0", **NUMBER)]
    found, calls = statuses(tmp_path, [*rows, row("paddle.sin*0")], [*rows, row("paddle.sin*0")], standard)
    assert found == [relu, number, f"pass {RATIOS}"]
    assert calls[0] == f"{relu.partition(' ')[0]}/ "


def test_what_no_ratios_support_is_skipped_as_a_call(tmp_path: Path) -> None:
    rows = [row("paddle.exp*0", **{"DEVICE Dtype": "paddle.float64"}), row("paddle.sin*0")]
    assert statuses(tmp_path, rows, rows, "paddleapex") == (["", "pass 标杆比对法"], ["skip/skip", "pass/ "])


def test_other_standards_need_the_columns_of_ulp(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "device", [row("paddle.exp*0")])
    assert compare(path, path, tmp_path / "out", "msprobe") == 2
    shown = capsys.readouterr().err
    assert "it has no column ULP" in shown
    assert "PaddleAPEX's files need --standard=paddleapex" in shown


def test_unlike_dumps_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    device = written(tmp_path / "device", [row(f"paddle.{name}*0") for name in ("exp", "sin", "cos")])
    benchmark = written(tmp_path / "benchmark", [row("paddle.exp*0")])
    assert compare(device, benchmark, tmp_path / "out") == 2
    assert "'1 of 3 outputs are on both sides' cannot be used" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_details_file_that_is_cut_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "device", [row("paddle.exp*0"), row("paddle.sin*0")])
    path.write_bytes(path.read_bytes()[:-20])
    assert compare(path, path, tmp_path / "out") == 2
    assert "line 3: a row has not the columns of the header" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_folders_of_outputs_are_for_direct(gpt: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for device in (gpt / "device", gpt):
        assert compare(device, gpt / "bench", tmp_path / "out") == 2
        assert "its outputs are compared with --direct" in capsys.readouterr().err


def test_a_folder_with_one_details_file_under_another_name(gpt: Path, tmp_path: Path) -> None:
    device, benchmark = ((gpt / name).parent for name in FILES)
    assert compare(device, benchmark, tmp_path / "out") == 1
